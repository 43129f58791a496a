//! Owns the engine's processes: starts them, drains their output, stops them, and proves that nothing of them is left.
//!
//! Between the tuner and the engine stands a small guardian process (`autotune guardian`). It is the engine's parent, reaps everything that the
//! engine leaves behind, and holds a pipe to the tuner. When the tuner dies in any way, the pipe closes and the guardian ends every process below
//! it. No process is ever matched by name.

mod answer;
mod child;
mod gate;
mod gpu;
mod graph;
pub mod guardian;
mod output;
mod processes;
mod scratch;

pub use answer::{Unanswered, answer};
pub use child::{Child, Launch, SuperviseError};
pub use gate::{Unclean, free_port};
pub(crate) use gate::{gpu_clean, port_clean};
pub use gpu::{GpuMemory, Gpus};
pub use graph::Graph;
pub use output::Output;
pub use processes::{Group, peak_memory, sweep};
pub use scratch::remove_scratch;
