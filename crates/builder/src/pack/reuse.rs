//! Data that is reused from a base: copied, or left where it is if the image is appended to the base.

mod copier;
mod files;

pub(super) use copier::ReuseCopier;
pub(crate) use copier::ReuseTotals;
