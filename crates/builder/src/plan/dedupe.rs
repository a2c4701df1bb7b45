//! Parts of files that occur several times.

pub(crate) mod chunker;
pub(crate) mod matching;
pub(crate) mod parts;
pub(crate) mod split_points;
