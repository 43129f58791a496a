//! Why no answer began: the HTTP library's error as one of our classes.

use std::error::Error;
use std::io;

use super::record::ErrorClass;

/// A name that could not be resolved; the resolver of the client says so in a type of its own.
#[derive(Debug, thiserror::Error)]
#[error("failed to resolve {name}: {source}")]
pub(super) struct Unresolved {
    pub(super) name: String,
    pub(super) source: io::Error,
}

/// The class of an error of sending.
pub(super) fn class(error: &reqwest::Error) -> ErrorClass {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<Unresolved>() {
            return ErrorClass::Dns;
        }
        if error.is::<rustls::Error>() {
            return ErrorClass::Tls;
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            // An error inside an I/O error is not among its sources.
            match io.get_ref() {
                Some(inner) if inner.is::<rustls::Error>() => return ErrorClass::Tls,
                Some(inner) if inner.is::<Unresolved>() => return ErrorClass::Dns,
                _ if io.kind() == io::ErrorKind::ConnectionRefused => return ErrorClass::RefusedConnection,
                _ => {}
            }
        }
        cause = error.source();
    }
    ErrorClass::Connection
}
