//! The threads of a server, and how they wait.

pub mod leader_followers;
pub mod spin;
pub mod watched;
