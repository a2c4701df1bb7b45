//! Images served by FUSE: root mounts directly, other users through `fusermount3`.

pub(crate) mod ask;
mod attach;
mod default_cache;
mod hot;
mod metrics;
mod mount_identity;
mod options;
mod prefetch;
mod protocol;
mod read_ahead;
pub(crate) mod recorder;
mod session;
mod threads;

pub use attach::require_fuse;
pub(crate) use default_cache::available;
pub use default_cache::default_cache;
pub use hot::{Hot, NOTES};
pub use kiln_read::ImageSources;
pub use metrics::labels::MetricLabels;
pub use metrics::query::query_stats;
pub use options::{FuseOptions, Modes, Prefetch};
pub use protocol::owners::{Ids, Owners};
pub use session::serve;
