//! Filters: the selection of a source's entries by path.
//!
//! A [`Filter`] works on any source. In a directory, excluded entries are not read and excluded
//! subdirectories not entered; for other sources, [`select`] removes the entries from the finished
//! tree. Both give the same result.

pub(crate) mod glob;
mod ignore;
mod path_globs;
pub(crate) mod path_list;
mod regexes;
pub(crate) mod rules;
mod select;
mod selection;

pub use ignore::{IGNORE_FILE_MAX_LEN, IgnoreFileProblem, IgnoreRules};
pub use path_globs::{PathGlob, PathGlobs};
pub use path_list::PathList;
pub use regexes::Regexes;
pub use rules::{Rule, Rules, lines};
pub use select::{PathErrors, select};
pub use selection::Filter;
