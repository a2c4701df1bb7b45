//! Output for people and scripts: messages, numbers, progress, JSON.

pub mod document;
pub mod progress;
pub mod report;
pub mod size;
pub mod text;
