//! Tests of the public interface of `kiln-composefs`.

mod common;
mod conversion;
mod dumps;
mod generator;
mod golden;
mod peer;
mod restoration;
mod rows;
mod shared_dumps;
mod table;
