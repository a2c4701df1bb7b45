//! Filters and policies: the selection of a source's entries, and changes to their metadata.
//!
//! A [`Filter`] works on any source. In a directory, excluded entries are not read and excluded
//! subdirectories not entered; for other sources, the entries are removed from the finished tree. A
//! [`Policy`] changes a finished tree: owners, permissions, times, extended attributes, links and
//! the marks of union filesystems. Both are plain values, and [`apply`] does no I/O.
//! [`leave_out_unfit`] comes last: it removes and counts attributes that EROFS cannot hold, or
//! reports an error.

pub(crate) mod acl;
pub(crate) mod chmod;
pub(crate) mod error;
mod file_contexts;
pub(crate) mod glob;
mod hints;
mod ids;
pub(crate) mod ignore;
pub(crate) mod left_out_xattrs;
mod links;
mod order;
pub(crate) mod overlay;
pub(crate) mod path;
mod path_list;
mod policy;
mod regexes;
mod rules;
pub(crate) mod select;
pub(crate) mod selection;
mod times;
pub(crate) mod unfit;
pub(crate) mod xattrs;

pub use chmod::Chmod;
pub use error::{FileError, PolicyError, SyntaxError};
pub use file_contexts::{FileContexts, Labels};
pub use hints::{Hint, HintRules};
pub use ids::{IdBase, IdKind, IdMap, IdPolicy, IdRange};
pub use order::{DataOrder, PathOrder};
pub use path_list::PathList;
pub use policy::{Policy, apply};
pub use regexes::Regexes;
pub use rules::{Rule, Rules, lines};
pub use selection::Filter;
pub use times::Times;
pub use unfit::leave_out_unfit;
pub use xattrs::{NameGlobs, XattrPolicy, parse_xattr};
