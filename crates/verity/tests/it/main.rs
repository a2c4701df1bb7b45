//! The public interface of the crate.

mod common;
mod damage;
mod formats;
mod reading;
mod updated;
