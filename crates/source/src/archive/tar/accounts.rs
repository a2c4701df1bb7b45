//! Ids of the users and groups that ACLs name, as the archive's own `etc/passwd` and `etc/group` have them.
//!
//! These may come behind the ACLs, so names wait for them in the attributes of the tree.

use kiln_tree::{Kind, NodeId, Tree};
use std::collections::HashMap;

use super::acl::{Account, Acl, Known, has_mark, without_mark};
use crate::filter::left_out_xattrs::LeftOutXattrs;

/// The longest list of users or groups that is read, in bytes.
const LIST_MAX_LEN: u64 = 16 << 20;
/// Symbolic links that are followed on the way to a list, as by Linux.
const LINKS_MAX: usize = 40;
/// Why an entry is left out.
const REASON: &str =
    "an entry of an ACL whose name has no id: neither it nor the archive's own etc/passwd or etc/group tells one";

/// Give all names in ACLs of `tree` their ids. Entries of names that have none are left out, and counted in `left_out`.
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
            // It was an ACL when it was written.
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

/// Ids by names, as the tree's own list has them; none where it has no such list.
fn list(tree: &Tree, account: Account) -> HashMap<Vec<u8>, u32> {
    let path: &[u8] = match account {
        Account::User => b"etc/passwd",
        Account::Group => b"etc/group",
    };
    let mut ids = HashMap::new();
    for line in read(tree, path).unwrap_or_default().split(|&byte| byte == b'\n') {
        // NAME:PASSWORD:ID, in both.
        let mut fields = line.split(|&byte| byte == b':');
        let (name, id) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
        let id = str::from_utf8(id).ok().and_then(|id| id.parse().ok()).filter(|&id: &u32| id != u32::MAX);
        if let Some(id) = id {
            ids.entry(name.to_vec()).or_insert(id);
        }
    }
    ids
}

/// Returns the contents of the file at `path`; `None` if there is no file, it is too long, or it cannot be read.
fn read(tree: &Tree, path: &[u8]) -> Option<Vec<u8>> {
    let id = find(tree, path)?;
    let Kind::File { len, .. } = tree.node(id).kind else { return None };
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= LIST_MAX_LEN)?];
    tree.open(id).ok()?.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

/// Returns the node at `path` where the tree is the root of a system. Symbolic links are followed, and lead to nothing
/// outside.
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
