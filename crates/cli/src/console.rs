//! What a person or a script is told: messages, numbers, progress, JSON.

pub mod progress;
pub mod report;
pub mod size;
pub mod text;
