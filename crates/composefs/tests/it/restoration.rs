//! Trees that are read back from images.

use super::common::{ROOT, VERSIONS, image, read, write};
use kiln_composefs::CfsTree;
use kiln_composefs::restore::{ImageFile, RestoreError, Role};
use kiln_composefs::tree::{Attributes, Builder, FileData, NodeIdx};
use kiln_digest::Digest;
use kiln_format::inode::FileType;
use kiln_tests::image::{open, scan_image};
use kiln_tree::{Kind, NodeId, Tree};
use std::collections::HashMap;

/// Reads a tree back from an image.
fn restore(image: Vec<u8>) -> CfsTree {
    let image = open(image).unwrap();
    let tree = scan_image(&image).unwrap();
    let holds_whiteout =
        |dir: NodeId| tree.entries(dir).iter().any(|entry| role(&tree, entry.node) == FoundRole::Whiteout);
    let root = tree.node(NodeId::ROOT);
    let mut builder = Builder::new(&attributes(root, 1));
    let add_xattrs = |builder: &mut Builder, id: NodeId| {
        let pairs = pairs(&tree, id);
        let path = path(&tree, id);
        let file = file(&tree, id, &path, &pairs);
        file.original_xattrs(holds_whiteout(id)).for_each(|(key, value)| builder.xattr(&key, value).unwrap());
    };
    add_xattrs(&mut builder, NodeId::ROOT);
    let mut known = HashMap::new();
    let mut stack = vec![(NodeId::ROOT, NodeIdx::ROOT)];
    while let Some((dir, parent)) = stack.pop() {
        for entry in tree.entries(dir) {
            if let Some(&first) = known.get(&entry.node) {
                builder.link(parent, entry.name, first).unwrap();
                continue;
            }
            let (id, node) = (entry.node, tree.node(entry.node));
            let (pairs, path) = (pairs(&tree, id), path(&tree, id));
            let file = file(&tree, id, &path, &pairs);
            let mut contents = Vec::new();
            let data = match (file.role().unwrap(), &node.kind) {
                (Role::Stub, _) => continue,
                (Role::Whiteout, _) => FileData::CharDevice(0),
                (Role::External { digest, object }, _) => FileData::External { size: file.size, digest, object },
                (Role::Plain, Kind::Directory(_)) => FileData::Directory,
                (Role::Plain, Kind::Symlink(target)) => FileData::Symlink(target),
                (Role::Plain, Kind::File { len, .. }) => {
                    contents.resize(*len as usize, 0);
                    tree.open(id).unwrap().read_exact_at(&mut contents, 0).unwrap();
                    FileData::Inline(&contents)
                }
                (Role::Plain, _) => FileData::CharDevice(file.rdev),
            };
            let new = builder.add(parent, entry.name, &attributes(node, tree.names_of(id)), data).unwrap();
            add_xattrs(&mut builder, id);
            known.insert(id, new);
            stack.push((id, new));
        }
    }
    builder.finish().unwrap()
}

#[derive(PartialEq)]
enum FoundRole {
    Whiteout,
    Other,
}

fn role(tree: &Tree, id: NodeId) -> FoundRole {
    let (pairs, path) = (pairs(tree, id), path(tree, id));
    match file(tree, id, &path, &pairs).role() {
        Ok(Role::Whiteout) => FoundRole::Whiteout,
        _ => FoundRole::Other,
    }
}

fn path(tree: &Tree, id: NodeId) -> Vec<u8> {
    [&b"/"[..], &tree.path(id)].concat()
}

fn pairs(tree: &Tree, id: NodeId) -> Vec<(&[u8], &[u8])> {
    tree.node(id).xattrs.iter().map(|xattr| (&*xattr.name, &*xattr.value)).collect()
}

fn file<'a>(tree: &Tree, id: NodeId, path: &'a [u8], xattrs: &'a [(&'a [u8], &'a [u8])]) -> ImageFile<'a> {
    let kind = &tree.node(id).kind;
    let (size, rdev) = match kind {
        Kind::File { len, .. } => (*len, 0),
        Kind::CharDevice(rdev) => (0, rdev.encode().unwrap()),
        _ => (0, 0),
    };
    ImageFile { path, file_type: kind.file_type(), size, rdev, xattrs }
}

fn attributes(node: &kiln_tree::Node, nlink: u32) -> Attributes {
    let meta = &node.meta;
    let (mtime, mtime_nsec) = (meta.mtime, meta.mtime_nsec);
    Attributes { permissions: meta.permissions, nlink, uid: meta.uid, gid: meta.gid, mtime, mtime_nsec }
}

#[test]
fn trees_come_back_from_their_images() {
    let hex = "ab".repeat(32);
    let long = "cd".repeat(64);
    let text = format!(
        "{ROOT}/00 0 20644 1 0 0 0 0.0 - - -\n\
         /a 64 100644 1 0 0 0 5.0 - {a} - security.selinux=s trusted.overlay.x=1 trusted.overlay.overlay.y=2\n\
         /b 70 100755 2 1000 0 0 0.9 {two}/{rest} - {hex} user.a=b\n\
         /c 70 100755 1 0 0 0 0.0 - - {long}\n\
         /d 0 40755 2 0 0 0 0.0 - - - trusted.overlay.whiteouts=z user.overlay.opaque=y\n\
         /d/b 70 @100755 2 1000 0 0 0.9 /b - {hex} user.a=b\n\
         /e 0 40755 2 0 0 0 0.0 - - - user.overlay.opaque=x\n\
         /e/w 0 20600 1 7 0 0 3.0 - - - user.k=v\n\
         /f 1 120777 1 0 0 0 0.0 t - -\n\
         /g 0 20644 1 0 0 259 0.0 - - -\n\
         /h 5000 100644 1 0 0 0 0.0 - - -\n",
        a = "a".repeat(64),
        two = &hex[..2],
        rest = &hex[2..],
    );
    let tree = read(text.as_bytes());
    for version in VERSIONS {
        let image_of = image(&tree, version);
        let again = restore(image_of.clone());
        // The mark of `/e` goes: composefs sets it again.
        let expected = text.replace(" - user.overlay.opaque=x", " -");
        let expected = String::from_utf8(write(&read(expected.as_bytes()))).unwrap();
        assert_eq!(String::from_utf8(write(&again)).unwrap(), expected);
        assert!(image(&again, version) == image_of);
    }
}

#[test]
fn odd_attributes_are_errors() {
    let digest = [&[0, 36, 0, 1][..], &[7; 32]].concat();
    let role = |metacopy: &[u8], redirect: &[u8]| {
        let xattrs = [(&b"trusted.overlay.metacopy"[..], metacopy), (&b"trusted.overlay.redirect"[..], redirect)];
        let file = ImageFile { path: b"/a", file_type: FileType::Regular, size: 1, rdev: 0, xattrs: &xattrs };
        file.role().map(|role| match role {
            Role::External { digest, object } => (digest, object.map(<[u8]>::to_vec)),
            role => panic!("{role:?}"),
        })
    };
    let object = Some(b"aa/b".to_vec());
    assert_eq!(role(&digest, b"/aa/b"), Ok((Digest::from_bytes(&[7; 32]), object.clone())));
    assert_eq!(role(b"", b"/aa/b"), Ok((None, object)));
    assert_eq!(role(&digest, b"aa/b"), Err(RestoreError::Redirect));
    for at in 0..4 {
        let mut other = digest.clone();
        other[at] ^= 2;
        assert_eq!(role(&other, b"/aa/b"), Err(RestoreError::Metacopy), "byte {at}");
    }
    assert_eq!(role(&digest[..35], b"/aa/b"), Err(RestoreError::Metacopy));
    assert_eq!(role(&digest[..3], b"/aa/b"), Err(RestoreError::Metacopy));
}
