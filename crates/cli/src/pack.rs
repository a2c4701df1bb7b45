//! `kiln pack`

mod arg_files;
mod args;
mod base;
mod by_path;
mod digests;
mod edit_args;
mod estimate;
mod explain;
mod failure;
pub mod hot;
mod layers;
mod layout_args;
mod layout_keys;
pub mod out_args;
pub mod output;
pub mod preset;
mod run;
mod sources;
mod summary;
pub mod target;
mod tree_args;
pub mod vmdk;

pub use arg_files::named;
pub use args::Args;
pub use base::{StampsWanted, TrustArg, tell_stamps, tell_unused_stamps};
pub use by_path::list_order;
pub use digests::DigestArgs;
pub use failure::{failure, source_date_epoch};
pub use layout_args::{ALIGN_MAX, CHUNK_MAX_LEN};
pub use run::run;
pub use sources::{ConcatenatedArg, notice_layout, open_source, parse_kind};
pub use summary::{
    InSource, LeftOutXattrJson, NoteJson, PackJson, PhaseJson, Report, phases, skipped_json, tell, tell_left_out,
    tell_notes, tell_skipped, tell_unmatched, verifiable,
};
pub use tree_args::{TreeArgs, owner};
