//! The threads of a server: which of them waits for requests, and how they wait.

pub(super) mod descriptors;
pub(super) mod leader_followers;
mod spin;
pub(super) mod watched;
