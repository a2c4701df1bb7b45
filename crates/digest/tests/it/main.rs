//! The public interface of the crate.

mod fs_verity;
