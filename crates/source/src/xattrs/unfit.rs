//! Extended attributes that EROFS cannot hold, such as those of macOS, NFS and other filesystems.

use kiln_format::xattr::{BODY_HEADER_LEN, BODY_MAX_LEN, NAME_MAX_LEN, VALUE_MAX_LEN, entry_len, split_name};
use kiln_tree::policy::XattrPolicy;
use kiln_tree::{NodeId, Tree, Xattr};
use std::borrow::Cow;

use super::left_out::{LeftOutXattr, LeftOutXattrs};

/// Maximum length in bytes of all attributes of a file.
const ROOM: usize = BODY_MAX_LEN - BODY_HEADER_LEN;

/// An attribute or an ACL entry that cannot be stored, under a strict policy.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: {_0}: to leave it out, use --xattr-exclude '{}', or neither --strict-xattrs nor --preset backup",
    lossy(&_0.path),
    lossy(&_0.name)
)]
pub struct UnfitXattr(pub Box<LeftOutXattr>);

fn lossy(path: &[u8]) -> Cow<'_, str> {
    match path {
        b"" => "/".into(),
        path => String::from_utf8_lossy(path),
    }
}

/// Removes attributes of `tree` that EROFS cannot hold, and adds them to the counts in `left_out`
/// of the source. Attributes that `policy` excludes anyway are not counted.
///
/// # Errors
/// The first of them, if `policy` is strict.
pub fn leave_out_unfit(
    tree: &mut Tree,
    policy: &XattrPolicy,
    mut left_out: LeftOutXattrs,
) -> Result<LeftOutXattrs, UnfitXattr> {
    left_out.retain(|name| policy.keeps(name));
    for idx in 0..tree.len() {
        let id = NodeId(idx as u32);
        let node = tree.node(id);
        let mut room = ROOM;
        if node.xattrs.iter().all(|xattr| unfit_because(xattr, &mut room).is_none()) {
            continue;
        }
        let (meta, mut room) = (node.meta, ROOM);
        let mut fit = Vec::with_capacity(node.xattrs.len());
        for xattr in node.xattrs.iter() {
            match unfit_because(xattr, &mut room) {
                None => fit.push(xattr.clone()),
                Some(reason) => left_out.add(&xattr.name, b"", reason, || tree.path(id)),
            }
        }
        tree.set(id, meta, fit.into());
    }
    let refused = left_out.iter().next().filter(|_| policy.strict).cloned();
    match refused {
        Some(first) => Err(UnfitXattr(Box::new(first))),
        None => Ok(left_out),
    }
}

/// Returns the first attribute of a file that EROFS cannot hold, and the reason.
pub(crate) fn first_unfit(xattrs: &[Xattr]) -> Option<(&Xattr, &'static str)> {
    let mut room = ROOM;
    xattrs.iter().find_map(|xattr| Some((xattr, unfit_because(xattr, &mut room)?)))
}

/// Returns the reason why EROFS cannot hold an attribute if `room` bytes are left for its file.
/// Returns `None` if it can, and subtracts the attribute's size from `room`.
fn unfit_because(xattr: &Xattr, room: &mut usize) -> Option<&'static str> {
    let Some((_, rest)) = split_name(&xattr.name) else {
        return Some("EROFS holds user., trusted., security. and POSIX ACL attributes only");
    };
    if xattr.name.len() > NAME_MAX_LEN {
        return Some("its name is longer than 255 bytes");
    }
    if xattr.value.len() > VALUE_MAX_LEN {
        return Some("its value is longer than 65535 bytes");
    }
    match room.checked_sub(entry_len(rest.len(), xattr.value.len())) {
        Some(left) => {
            *room = left;
            None
        }
        None => Some("the attributes of its file take more than the 256 KiB that EROFS has for them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfit_attributes_are_detected() {
        let xattr = |name: &str, len: usize| Xattr { name: name.as_bytes().into(), value: vec![0; len].into() };
        let mut room = ROOM;
        for (name, len, fits) in [
            ("user.a", 65535, true),
            ("user.a", 65536, false),
            ("user.", 0, false),
            ("com.apple.provenance", 11, false),
            ("system.nfs4_acl", 0, false),
            ("system.posix_acl_access", 4, true),
            (&format!("user.{}", "a".repeat(250)), 0, true),
            (&format!("user.{}", "a".repeat(251)), 0, false),
            ("trusted.b", 65535, true),
            ("security.c", 65535, true),
            ("user.d", 65535, false),
            ("user.e", 60000, true),
        ] {
            assert_eq!(unfit_because(&xattr(name, len), &mut room).is_none(), fits, "{name}: {len}");
        }
    }
}
