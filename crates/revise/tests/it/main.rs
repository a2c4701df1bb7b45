//! Tests of this crate, in one program, which links much faster than many.

mod increment;
mod style;
