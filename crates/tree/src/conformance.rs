//! A test of contents that stand before others: all that they are asked has to reach those.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::digest_name::DigestName;
use kiln_format::BlockBits;
use kiln_format::compr_cfg::ComprCfgs;

use super::content::{Content, ContentId, Contents, DigestOf, StoredDigest};
use super::error::ContentError;
use super::kept::{Base, BaseFacts, Former, Kept, KeptExtents, Taking};
use super::placed::{Device, PlacedRun};

/// Length that is asked for: of contents, and of what is read of them.
const LEN: usize = 256;

/// Assert that `outer`, which stands before [`Echo`], asks it all that it is asked itself: of the contents `asked` at a
/// path, those that `forwarded` names. `own` names the methods of [`Contents`] that `outer` answers by itself. Meant
/// for tests.
///
/// # Panics
/// A method that is not in `own` gives another answer than [`Echo`] does, or one that is gives the same.
pub fn assert_forwards(
    outer: &dyn Contents,
    asked: (ContentId, &str),
    forwarded: (ContentId, &str),
    own: &[&'static str],
) {
    for ((method, answer), (_, expected)) in answers(outer, asked).into_iter().zip(answers(&Echo, forwarded)) {
        match own.contains(&method) {
            true => assert_ne!(answer, expected, "{method}: forwarded, and said to be answered otherwise"),
            false => assert_eq!(answer, expected, "{method}: not forwarded as it has to be"),
        }
    }
}

/// Answers of all methods of [`Contents`], by their names.
fn answers(contents: &dyn Contents, (id, path): (ContentId, &str)) -> [(&'static str, String); 11] {
    let (path, len) = (path.as_bytes(), LEN as u64);
    [
        ("open", text(contents.open(id, path))),
        ("open_changed", text(contents.open_changed(id, path))),
        ("devices", format!("{:?}", contents.devices())),
        ("placed", format!("{:?}", contents.placed(id, len))),
        ("base", format!("{:?}", contents.base().map(|base| base.facts().identity.clone()))),
        ("kept", format!("{:?}", contents.kept(id, len))),
        ("open_kept", text(contents.open_kept(id, path))),
        ("digest_name", format!("{:?}", contents.digest_name())),
        ("stored_digest", format!("{:?}", contents.stored_digest(id))),
        ("former", format!("{:?}", contents.former(id))),
        ("open_former", text(contents.open_former(id, path))),
    ]
}

/// The front of contents, or why there are none.
fn text(content: Result<Box<dyn Content>, ContentError>) -> String {
    let mut buf = vec![0; LEN];
    match content.and_then(|mut content| content.read_exact_at(&mut buf, 0)) {
        Ok(()) => String::from_utf8_lossy(&buf).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// Contents whose every answer tells which method was called, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Echo;

impl Contents for Echo {
    fn open(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        Ok(EchoContent::boxed("open", id, path))
    }

    fn open_changed(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        Ok(EchoContent::boxed("open_changed", id, path))
    }

    fn devices(&self) -> Vec<Device> {
        vec![Device { path: Some("echo".into()), tag: [1; 64], len: 1 << 20 }]
    }

    fn placed(&self, id: ContentId, len: u64) -> Result<Option<Vec<PlacedRun>>, ContentError> {
        Ok(Some(vec![PlacedRun { la: 0, device: 0, pa: id.0.into(), len }]))
    }

    fn base(&self) -> Option<Arc<dyn Base>> {
        let facts = BaseFacts {
            taking: Taking::Copied,
            identity: b"echo".to_vec(),
            len: 0,
            block_bits: BlockBits::DEFAULT,
            cfgs: ComprCfgs::default(),
            packed: KeptExtents::default(),
        };
        Some(Arc::new(EchoBase(facts)))
    }

    fn kept(&self, id: ContentId, len: u64) -> Result<Option<Kept>, ContentError> {
        Ok(Some(Kept::Fragment { off: u64::from(id.0) << 32 | len }))
    }

    fn open_kept(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        Ok(EchoContent::boxed("open_kept", id, path))
    }

    fn digest_name(&self) -> Option<DigestName> {
        Some(DigestName::Prefix(b"echo".to_vec()))
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        let sha256 = std::array::from_fn(|at| if at == 0 { id.0 as u8 } else { 0 });
        Ok(Some(StoredDigest { sha256, image: Path::new("echo").into(), of: DigestOf::Contents }))
    }

    fn former(&self, id: ContentId) -> Result<Option<Former>, ContentError> {
        Ok(Some(Former { len: id.0.into(), extents: KeptExtents::default(), differences: None }))
    }

    fn open_former(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        Ok(EchoContent::boxed("open_former", id, path))
    }
}

/// Bytes that tell how they were opened.
struct EchoContent(Vec<u8>);

impl EchoContent {
    fn boxed(method: &str, id: ContentId, path: &[u8]) -> Box<dyn Content> {
        Box::new(Self(format!("{method} {} {}", id.0, path.escape_ascii()).into_bytes()))
    }
}

impl Content for EchoContent {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        let bytes = self.0.iter().copied().chain(std::iter::repeat(b' ')).skip(off as usize);
        buf.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        Ok(Some(off..LEN as u64).filter(|range| !range.is_empty()))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}

/// A base without bytes.
struct EchoBase(BaseFacts);

impl Base for EchoBase {
    fn facts(&self) -> &BaseFacts {
        &self.0
    }

    fn file(&self) -> Option<&File> {
        None
    }

    fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn verify_unchanged(&self) -> Result<(), ContentError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contents that forward only what they must.
    struct Forgetful;

    impl Contents for Forgetful {
        fn open(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
            Echo.open(id, path)
        }
    }

    /// All that [`Forgetful`] does not forward, but for `former`.
    const NOT_FORWARDED: [&str; 9] = [
        "open_changed",
        "devices",
        "placed",
        "base",
        "kept",
        "open_kept",
        "digest_name",
        "stored_digest",
        "open_former",
    ];

    #[test]
    fn every_method_of_contents_is_asked() {
        let text = include_str!("content.rs");
        let (_, methods) = text.split_once("pub trait Contents").unwrap();
        let (methods, _) = methods.split_once("\n}\n").unwrap();
        let names = methods.lines().filter_map(|line| line.strip_prefix("    fn ")?.split_once('('));
        let names: Vec<&str> = names.map(|(name, _)| name).collect();
        assert_eq!(answers(&Echo, (ContentId(0), "")).map(|(name, _)| name).to_vec(), names);
    }

    #[test]
    fn what_forwards_all_passes() {
        assert_forwards(&Echo, (ContentId(3), "a"), (ContentId(3), "a"), &[]);
        let own = [&NOT_FORWARDED[..], &["former"]].concat();
        assert_forwards(&Forgetful, (ContentId(3), "a"), (ContentId(3), "a"), &own);
    }

    #[test]
    #[should_panic(expected = "former: not forwarded as it has to be")]
    fn what_forgets_a_method_is_caught() {
        assert_forwards(&Forgetful, (ContentId(3), "a"), (ContentId(3), "a"), &NOT_FORWARDED);
    }
}
