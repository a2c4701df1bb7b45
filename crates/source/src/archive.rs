//! Archives as trees.

#[expect(dead_code, reason = "archives follow")]
mod members;
