//! A test of contents that stand before others: all that they are asked has to reach those.

use crate::{NodeId, Tree};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::digest_name::{DigestName, DigestStyle};
use kiln_digest::contents::ContentHash;
use kiln_format::BlockBits;
use kiln_format::compr_cfg::ComprCfgs;

use super::content::{Content, ContentId, Contents, DigestOf, Stored, StoredDigest, Stores, Version};
use super::error::ContentError;
use super::placed::{Device, PlacedRun};
use super::reuse::{Base, BaseFacts, PreviousVersion, Reuse, ReusedData, ReusedExtents};

/// Bytes that are read of contents.
const LEN: usize = 256;
/// Lengths of contents of which [`Echo`] says that they are stored so.
const ELSEWHERE_LEN: u64 = 1;
const REUSED_LEN: u64 = 2;
const PREVIOUS_LEN: u64 = 3;

/// Assert that `outer`, which stands before [`Echo`], asks it all that it is asked itself: of the
/// contents `asked` at a path, those that `forwarded` names. `own` names the answers that `outer`
/// gives by itself, such as "stored reused". Meant for tests.
///
/// # Panics
/// An answer that is not in `own` differs from that of [`Echo`], or one that is in it does not.
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

/// Answers of all methods of [`Contents`], by names that begin with that of the method.
fn answers(contents: &dyn Contents, (id, path): (ContentId, &str)) -> [(&'static str, String); 12] {
    let open = |version| text(contents.open(id, path.as_bytes(), version));
    let stored = |len: u64| format!("{:?}", contents.stored(id, len));
    let Stores { devices, headers_only, base, digests } = contents.stores();
    [
        ("open scanned", open(Version::Scanned)),
        ("open changed", open(Version::Changed)),
        ("open reused", open(Version::Reused)),
        ("stored elsewhere", stored(ELSEWHERE_LEN)),
        ("stored reused", stored(REUSED_LEN)),
        ("stored previous", stored(PREVIOUS_LEN)),
        ("stored to read", stored(0)),
        ("stored_digest", format!("{:?}", contents.stored_digest(id))),
        ("stores devices", format!("{devices:?}")),
        ("stores headers_only", format!("{headers_only:?}")),
        ("stores base", format!("{:?}", base.map(|base| base.facts().identity.clone()))),
        ("stores digests", format!("{digests:?}")),
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

/// Contents whose every answer tells which method was called, and with which arguments:
/// [`Contents::stored`] answers by the length.
#[derive(Clone, Copy, Debug)]
pub struct Echo;

impl Contents for Echo {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        let opened = format!("{version:?} {} {}", id.0, path.escape_ascii());
        Ok(Box::new(EchoContent(opened.into_bytes())))
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        Ok(match len {
            ELSEWHERE_LEN => Stored::Elsewhere(vec![PlacedRun { la: 0, device: 0, pa: id.0.into(), len }]),
            REUSED_LEN => Stored::Reused(ReusedData::Fragment { off: u64::from(id.0) << 32 | len }),
            PREVIOUS_LEN => Stored::Previous(PreviousVersion {
                len: id.0.into(),
                extents: ReusedExtents::default(),
                differences: Vec::new(),
            }),
            _ => Stored::ToRead,
        })
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        let digest = ContentHash::Sha256.digest(&id.0.to_le_bytes());
        Ok(Some(StoredDigest { digest, image: Path::new("echo").into(), of: DigestOf::Contents }))
    }

    fn stores(&self) -> Stores {
        let facts = BaseFacts {
            reuse: Reuse::Copy,
            identity: b"echo".to_vec(),
            len: 0,
            block_bits: BlockBits::DEFAULT,
            cfgs: ComprCfgs::default(),
            packed: ReusedExtents::default(),
            metadata: None,
        };
        Stores {
            devices: vec![Device { path: Some("echo".into()), tag: [1; 64], len: 1 << 20 }],
            headers_only: true,
            base: Some(Arc::new(EchoBase(facts))),
            digests: Some(DigestStyle { name: DigestName::Prefix(b"echo".to_vec()), hash: ContentHash::Sha256 }),
        }
    }
}

/// Bytes that tell how they were opened.
struct EchoContent(Vec<u8>);

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

    fn inode_places(&self, _: &Tree) -> Vec<(NodeId, u64)> {
        Vec::new()
    }

    fn verify_unchanged(&self) -> Result<(), ContentError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contents that forward all but one answer.
    struct Forgetful;

    impl Contents for Forgetful {
        fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
            Echo.open(id, path, version)
        }

        fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
            Ok(match Echo.stored(id, len)? {
                Stored::Previous(_) => Stored::ToRead,
                stored => stored,
            })
        }

        fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
            Echo.stored_digest(id)
        }

        fn stores(&self) -> Stores {
            Echo.stores()
        }
    }

    #[test]
    fn every_method_of_contents_is_asked() {
        let text = include_str!("content.rs");
        let (_, methods) = text.split_once("pub trait Contents").unwrap();
        let (methods, _) = methods.split_once("\n}\n").unwrap();
        let names = methods.lines().filter_map(|line| line.strip_prefix("    fn ")?.split_once('('));
        let names: Vec<&str> = names.map(|(name, _)| name).collect();
        let mut asked = answers(&Echo, (ContentId(0), "")).map(|(name, _)| name.split(' ').next().unwrap()).to_vec();
        asked.dedup();
        assert_eq!(asked, names);
    }

    #[test]
    fn wrappers_that_forward_everything_pass() {
        assert_forwards(&Echo, (ContentId(3), "a"), (ContentId(3), "a"), &[]);
        let shared: Arc<dyn Contents> = Arc::new(Echo);
        assert_forwards(&shared, (ContentId(3), "a"), (ContentId(3), "a"), &[]);
        assert_forwards(&Forgetful, (ContentId(3), "a"), (ContentId(3), "a"), &["stored previous"]);
    }

    #[test]
    #[should_panic(expected = "stored previous: not forwarded as it has to be")]
    fn wrappers_that_forget_an_answer_are_caught() {
        assert_forwards(&Forgetful, (ContentId(3), "a"), (ContentId(3), "a"), &[]);
    }
}
