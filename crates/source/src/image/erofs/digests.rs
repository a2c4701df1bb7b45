//! Names of the content digests of an image.

use kiln_format::Compat;
use kiln_format::xattr::FINGERPRINT_NAME;
use kiln_read::Image;
use kiln_tree::DigestName;

/// Returns the name of the content digests of an image that has some. If the stored name is that of
/// an ordinary attribute, which programs see, the usual name is returned instead.
pub fn digest_name(image: &Image) -> DigestName {
    let (number, prefixes) = (usize::from(image.superblock().ishare_xattr_prefix_id), image.xattr_prefixes());
    let is_usual = prefixes.get(number).is_some_and(|name| name == FINGERPRINT_NAME);
    match image.has_content_digests() && has_visible_prefixes(image) && is_usual {
        true => DigestName::Prefix(FINGERPRINT_NAME.to_vec()),
        false => DigestName::Usual,
    }
}

/// Returns true if kernels read long prefixes in the image itself. If they are in a special inode,
/// only newer kernels read them.
pub fn has_visible_prefixes(image: &Image) -> bool {
    let superblock = image.superblock();
    superblock.compat.contains(Compat::PLAIN_XATTR_PFX) || superblock.packed_nid.or(superblock.metabox_nid).is_none()
}
