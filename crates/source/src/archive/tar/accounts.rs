//! Ids of the users and groups named in ACLs, from the archive's own `etc/passwd` and `etc/group`.
//!
//! These files may come after the ACLs, so names are resolved once the tree is complete. Until then
//! the attributes hold the text of the ACL.

use kiln_tree::{Kind, NodeId, Tree};
use std::collections::HashMap;

use super::acl::{Account, Acl, Known, has_mark, without_mark};
use crate::xattrs::left_out::LeftOutXattrs;

/// Maximum length in bytes of a list of users or groups.
const LIST_MAX_LEN: u64 = 16 << 20;
/// Maximum number of symbolic links followed on the way to a list, as in Linux.
const LINKS_MAX: usize = 40;
/// Reason for leaving out an entry.
const REASON: &str = "an ACL entry whose name has no id in the entry or in the archive's etc/passwd or etc/group";

/// Replaces the names in all ACLs of `tree` by ids. Entries whose names have no id are removed and
/// counted in `left_out`.
pub(super) fn resolve(tree: &mut Tree, left_out: &mut LeftOutXattrs) {
    let mut ids: HashMap<Account, HashMap<Vec<u8>, u32>> = HashMap::new();
    for idx in 0..tree.len() {
        let id = NodeId(idx as u32);
        let node = tree.node(id);
        if !node.xattrs.iter().any(has_mark) {
            continue;
        }
        let (meta, mut xattrs) = (node.meta, node.xattrs.to_vec());
        for xattr in xattrs.iter_mut().filter(|xattr| has_mark(xattr)) {
            let name = without_mark(&xattr.name).to_vec();
            // The value was produced by `Acl::to_xattr`, so it parses.
            let Ok(mut acl) = Acl::parse(&xattr.value, &Known::default()) else { continue };
            for account in [Account::User, Account::Group] {
                ids.entry(account).or_insert_with(|| list(tree, account));
            }
            for (account, who) in acl.resolve(|account, name| ids[&account].get(name).copied()) {
                let entry = [account.keyword().as_bytes(), b":", &who].concat();
                left_out.add(&name, &entry, REASON, || tree.path(id));
            }
            *xattr = acl.to_xattr(&name);
        }
        tree.set(id, meta, xattrs.into());
    }
}

/// Returns the ids by name of the tree's own list; empty if the tree has no such list.
fn list(tree: &Tree, account: Account) -> HashMap<Vec<u8>, u32> {
    let path: &[u8] = match account {
        Account::User => b"etc/passwd",
        Account::Group => b"etc/group",
    };
    let mut ids = HashMap::new();
    for line in read(tree, path).unwrap_or_default().split(|&byte| byte == b'\n') {
        // Both files have NAME:PASSWORD:ID.
        let mut fields = line.split(|&byte| byte == b':');
        let (name, id) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
        let id = str::from_utf8(id).ok().and_then(|id| id.parse().ok()).filter(|&id: &u32| id != u32::MAX);
        if let Some(id) = id {
            ids.entry(name.to_vec()).or_insert(id);
        }
    }
    ids
}

/// Returns the contents of the file at `path`; `None` if there is no file, it is too long, or it
/// cannot be read.
fn read(tree: &Tree, path: &[u8]) -> Option<Vec<u8>> {
    let id = find(tree, path)?;
    let Kind::File { len, .. } = tree.node(id).kind else { return None };
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= LIST_MAX_LEN)?];
    tree.open(id).ok()?.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

/// Returns the node at `path`, with the root of the tree as the root directory. Follows symbolic
/// links, which cannot lead out of the tree.
fn find(tree: &Tree, path: &[u8]) -> Option<NodeId> {
    let names = |path: &[u8]| path.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (mut ahead, mut passed, mut links) = (names(path), vec![NodeId::ROOT], 0);
    while let Some(name) = ahead.pop() {
        let dir = *passed.last()?;
        match &*name {
            b"" | b"." => {}
            b".." if passed.len() > 1 => drop(passed.pop()),
            b".." => {}
            name => {
                let Kind::Directory(_) = tree.node(dir).kind else { return None };
                let found = tree.entries(dir).find(name)?;
                match &tree.node(found).kind {
                    Kind::Symlink(target) => {
                        links += 1;
                        if links > LINKS_MAX {
                            return None;
                        }
                        if target.starts_with(b"/") {
                            passed.truncate(1);
                        }
                        ahead.extend(names(target));
                    }
                    _ => passed.push(found),
                }
            }
        }
    }
    passed.pop()
}
