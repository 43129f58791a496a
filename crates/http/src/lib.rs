//! HTTP as every client and server of the program has it: TLS and keys, bodies with a limit, a server with a limit.

pub mod access;
pub mod body;
pub mod serving;
