//! Owners and permissions within extended attributes, which must be consistent with the inode.

use crate::Xattr;
use kiln_format::acl::{ACCESS, IdKind, entries, named_ids};

use super::ids::{IdPolicy, IdProblem};

/// Tags of the entries of an ACL.
const USER_OBJ: [u8; 2] = 0x01_u16.to_le_bytes();
const GROUP_OBJ: [u8; 2] = 0x04_u16.to_le_bytes();
const MASK: [u8; 2] = 0x10_u16.to_le_bytes();
const OTHER: [u8; 2] = 0x20_u16.to_le_bytes();

/// An id that cannot be translated, with its kind and the problem.
pub(super) type Lost = (IdKind, u32, IdProblem);

/// Translates the ids in ACLs and in file capabilities of a user namespace, as the kernel does in
/// idmapped mounts. Values in unknown formats are not changed.
pub(super) fn translate_ids(xattr: &mut Xattr, uid: &IdPolicy, gid: &IdPolicy) -> Result<(), Lost> {
    for (kind, id) in named_ids(&xattr.name, &mut xattr.value) {
        let policy = match kind {
            IdKind::Uid => uid,
            IdKind::Gid => gid,
        };
        translate(id, kind, policy)?;
    }
    Ok(())
}

/// Sets the permissions in an ACL to those of an inode, as chmod(2) does: the permissions of the
/// group go to the mask, if there is one.
pub(super) fn set_permissions(xattr: &mut Xattr, permissions: u16) {
    if &*xattr.name != ACCESS {
        return;
    }
    let entries = entries(&mut xattr.value);
    let has_mask = entries.iter().any(|[low, high, ..]| [*low, *high] == MASK);
    for [tag_low, tag_high, allowed @ .., _, _, _, _] in entries {
        let shift = match [*tag_low, *tag_high] {
            USER_OBJ => 6,
            MASK => 3,
            GROUP_OBJ if !has_mask => 3,
            OTHER => 0,
            _ => continue,
        };
        *allowed = (permissions >> shift & 7).to_le_bytes();
    }
}

fn translate(bytes: &mut [u8; 4], kind: IdKind, policy: &IdPolicy) -> Result<(), Lost> {
    let id = u32::from_le_bytes(*bytes);
    *bytes = policy.apply_named(id).map_err(|problem| (kind, id, problem))?.to_le_bytes();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{IdBase, IdMap};
    use kiln_format::acl::DEFAULT;

    fn moved(name: &[u8], value: &[u8], base: IdBase) -> Result<Vec<u8>, Lost> {
        let mut xattr = Xattr { name: name.into(), value: value.into() };
        let (uid, gid) = (IdPolicy { base: base.clone(), offset: 10 }, IdPolicy { base, offset: 20 });
        translate_ids(&mut xattr, &uid, &gid).map(|()| xattr.value.into_vec())
    }

    /// Returns an ACL with these tags, permissions and, for named entries, ids.
    fn acl(entries: &[(u8, u8, u8)]) -> Vec<u8> {
        let mut acl = vec![2, 0, 0, 0];
        for &(tag, permissions, id) in entries {
            let id = if matches!(tag, 2 | 8) { u32::from(id) } else { u32::MAX };
            acl.extend([tag, 0, permissions, 0].into_iter().chain(id.to_le_bytes()));
        }
        acl
    }

    #[test]
    fn named_ids_move_along() {
        let of = |user, group| acl(&[(1, 7, 0), (2, 6, user), (4, 5, 0), (8, 4, group), (16, 7, 0), (32, 4, 0)]);
        for name in [ACCESS, DEFAULT] {
            assert_eq!(moved(name, &of(5, 6), IdBase::Keep).unwrap(), of(15, 26));
            assert_eq!(moved(name, &of(5, 6), IdBase::All(0)).unwrap(), of(5, 6), "they are no owners");
            let unmapped = moved(name, &of(5, 6), IdBase::Map(IdMap::default()));
            assert_eq!(unmapped, Err((IdKind::Uid, 5, IdProblem::Unmapped)));
        }
        assert_eq!(moved(b"user.acl", &of(5, 6), IdBase::Keep).unwrap(), of(5, 6));
        for odd in [&[][..], &[2, 0, 0], &[3, 0, 0, 0, 2, 0, 7, 0, 1, 0, 0, 0], &[2, 0, 0, 0, 2, 0, 7, 0, 1]] {
            assert_eq!(moved(ACCESS, odd, IdBase::Keep).unwrap(), odd, "unknown forms stay");
        }
    }

    #[test]
    fn capabilities_of_a_namespace_move_along() {
        let of = |root: u8| [&[1, 0, 0, 3][..], &[9; 16], &[root, 0, 0, 0]].concat();
        assert_eq!(moved(b"security.capability", &of(5), IdBase::Keep).unwrap(), of(15));
        let older = [&[1, 0, 0, 2][..], &[9; 16]].concat();
        assert_eq!(moved(b"security.capability", &older, IdBase::Keep).unwrap(), older);
    }

    #[test]
    fn permissions_go_to_the_mask_if_there_is_one() {
        let after = |name: &[u8], entries: &[(u8, u8, u8)]| {
            let mut xattr = Xattr { name: name.into(), value: acl(entries).into() };
            set_permissions(&mut xattr, 0o751);
            xattr.value.into_vec()
        };
        let masked = [(1, 0, 0), (2, 6, 5), (4, 6, 0), (16, 0, 0), (32, 0, 0)];
        assert_eq!(after(ACCESS, &masked), acl(&[(1, 7, 0), (2, 6, 5), (4, 6, 0), (16, 5, 0), (32, 1, 0)]));
        assert_eq!(after(ACCESS, &[(1, 0, 0), (4, 6, 0), (32, 0, 0)]), acl(&[(1, 7, 0), (4, 5, 0), (32, 1, 0)]));
        assert_eq!(after(DEFAULT, &masked), acl(&masked), "what new files get is not changed");
    }
}
