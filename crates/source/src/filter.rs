//! What of a source goes into an image, and as what.
//!
//! A [`Filter`] decides about any source. Of a directory, what it leaves out is never looked at, and a subdirectory that is left
//! out is never entered; of other sources, it is taken out of the finished tree. A [`Policy`] changes a finished tree, of any source: owners, permissions, times, extended
//! attributes, links and the marks of union filesystems. Both are plain values; [`apply`] does no I/O. [`leave_out_unfit`] comes last: what EROFS
//! cannot hold is left out of the tree and counted, or an error.

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
