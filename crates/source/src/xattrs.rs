//! Extended attributes that EROFS cannot hold: [`leave_out_unfit`] removes and counts them, or
//! reports an error.

pub(crate) mod left_out;
pub(crate) mod unfit;

pub use left_out::{LeftOutXattr, LeftOutXattrs};
pub use unfit::{UnfitXattr, leave_out_unfit};
