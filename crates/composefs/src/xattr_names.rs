//! Names of the attributes that composefs sets.

/// Prefix of the attributes that overlayfs reads.
pub(crate) const OVERLAY: &[u8] = b"trusted.overlay.";
/// The prefix under which an overlayfs shows attributes with [`OVERLAY`] to one above it.
pub(crate) const OVERLAY_ESCAPED: &[u8] = b"trusted.overlay.overlay.";
/// Digest of the contents of a file that is an object.
pub(crate) const METACOPY: &[u8] = b"trusted.overlay.metacopy";
/// Path of the object.
pub(crate) const REDIRECT: &[u8] = b"trusted.overlay.redirect";
/// Mark of the root.
pub(crate) const ROOT_OPAQUE: &[u8] = b"trusted.overlay.opaque";
/// Marks of files that stand for whiteouts.
pub(crate) const WHITEOUT: [&[u8]; 2] = [b"trusted.overlay.overlay.whiteout", b"user.overlay.whiteout"];
/// Marks of directories with whiteouts.
pub(crate) const WHITEOUTS: [&[u8]; 2] = [b"trusted.overlay.overlay.whiteouts", b"user.overlay.whiteouts"];
/// Marks of directories with whiteouts, from version 1 on.
pub(crate) const OPAQUE: [&[u8]; 2] = [b"trusted.overlay.overlay.opaque", b"user.overlay.opaque"];
