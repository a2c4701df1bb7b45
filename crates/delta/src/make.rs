//! Making of a patch.

mod ahead;
mod chunks;
mod group;
pub(crate) mod made;
mod map;
mod matcher;
mod neighbours;
mod prover;
mod region;
mod stored;
mod texts;
mod writer;

use kiln_builder::{Control, Progress};
use kiln_output::Spool;
use kiln_read::{Image, ImageOptions, ReadAt};
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::apply::{NewPrefix, Patch, used_digest};
use crate::error::{DeltaError, Side};
use crate::format::header::{EncoderUse, Header};
use crate::make::made::{MakeOptions, MakeReport};
use crate::make::map::ImageMap;
use crate::make::writer::Maker;
use crate::recorder::Recorder;
use crate::stop::check_stop;

/// Size in bytes of the cache for each image's text.
const CACHE_LEN: u64 = 64 << 20;
/// Size in bytes of the blocks that are compared at the same offset of both images.
const CHANGED_UNIT: usize = 4096;

/// The two passes over the new image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Describe,
    Prove,
}

/// Writes a patch from `old` to `new` to `out`. Each encoding step is verified as it is found, and
/// the whole patch at the end.
///
/// Progress counts the new image's bytes twice: when they are described, and when the patch
/// reproduces them.
///
/// Memory use is about 1/20 of the size of the old image's text, plus 500 MiB.
///
/// # Errors
/// Images that are damaged or cannot be read, an output that cannot be written, an interruption.
pub fn make(
    old: &Arc<dyn ReadAt>,
    new: &Arc<dyn ReadAt>,
    out: &mut dyn Write,
    options: &MakeOptions,
    control: &Control<'_>,
) -> Result<MakeReport, DeltaError> {
    let stop = control.stop;
    let open = |source: &Arc<dyn ReadAt>, side| {
        let image_options = ImageOptions::default().with_cache_bytes(CACHE_LEN);
        Image::open(source.clone(), Vec::new(), &image_options).map_err(DeltaError::image(side))
    };
    let (old_image, new_image) = (open(old, Side::Old)?, open(new, Side::New)?);
    let old_map = ImageMap::new(&old_image).map_err(DeltaError::image(Side::Old))?;
    let new_map = ImageMap::new(&new_image).map_err(DeltaError::image(Side::New))?;
    check_stop(stop)?;
    let new_len = new_map.len;
    let told = |phase: Phase, done: u64| {
        let before = if phase == Phase::Describe { 0 } else { new_len };
        (control.progress)(Progress { done_bytes: before + done, total_bytes: 2 * new_len });
    };
    let spool = Spool::create(&options.spool_dir).map_err(|source| DeltaError::Write {
        action: "make a file for the patch's body",
        source: std::io::Error::other(source.to_string()),
    })?;
    let old_side = writer::Side { source: &**old, image: &old_image, map: &old_map };
    let new_side = writer::Side { source: &**new, image: &new_image, map: &new_map };
    let maker = Maker::new(old_side, new_side, spool.file(), options, stop)?;
    let written = maker.run(&|at| told(Phase::Describe, at))?;
    let (new_digest, changed_len) = digest_of(&**new, new_map.len, &**old, old_map.len, stop)?;
    let encoders =
        written.forms.iter().map(|form| EncoderUse { form: *form, version: form.spec.method.encoder_version() });
    let mut header = Header {
        old_len: old_map.len,
        old_uuid: old_image.superblock().uuid,
        old_digest: [0; 32],
        old_used: Vec::new(),
        new_len: new_map.len,
        new_digest,
        changed_len,
        new_tree: options.new_tree.clone(),
        encoders: encoders.collect(),
        texts: written.texts,
    };
    prove(&mut header, old, spool.file(), &told, stop)?;
    let mut made = written.made;
    made.patch_len = write_patch(&header, spool.file(), out)?;
    (made.old_len, made.new_len) = (old_map.len, new_map.len);
    Ok(made)
}

/// Applies the patch, and stores in the header which ranges of the old image it reads.
fn prove(
    header: &mut Header,
    old: &Arc<dyn ReadAt>,
    body: &File,
    told: &dyn Fn(Phase, u64),
    stop: &AtomicBool,
) -> Result<(), DeltaError> {
    let recorder = Arc::new(Recorder::new(old.clone()));
    let patch = Patch::open(Cursor::new(header.to_stored()?).chain(rewound(body)?))?;
    let mut proved = |off: u64, bytes: &[u8], _: &blake3::Hasher| {
        told(Phase::Prove, off + bytes.len() as u64);
        Ok(())
    };
    patch.apply_unchecked(recorder.clone(), NewPrefix::default(), &mut proved, stop)?;
    header.old_used = recorder.ranges(header.old_len);
    header.old_digest = used_digest(&header.old_used, &**old, stop)?;
    Ok(())
}

fn rewound(mut body: &File) -> Result<BufReader<&File>, DeltaError> {
    body.rewind().map_err(DeltaError::write("read back the patch's body"))?;
    Ok(BufReader::new(body))
}

fn write_patch(header: &Header, body: &File, out: &mut dyn Write) -> Result<u64, DeltaError> {
    let header = header.to_stored()?;
    let failed = DeltaError::write("write the patch");
    out.write_all(&header).map_err(&failed)?;
    let body_len = std::io::copy(&mut rewound(body)?, out).map_err(&failed)?;
    out.flush().map_err(&failed)?;
    Ok(header.len() as u64 + body_len)
}

/// Returns the BLAKE3 digest of the new image, and the number of its bytes in blocks that differ
/// from the old image at the same offset.
fn digest_of(
    new: &dyn ReadAt,
    new_len: u64,
    old: &dyn ReadAt,
    old_len: u64,
    stop: &AtomicBool,
) -> Result<([u8; 32], u64), DeltaError> {
    let (mut hasher, mut changed) = (blake3::Hasher::new(), 0);
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut off = 0;
    while off < new_len {
        check_stop(stop)?;
        let len = (new_len - off).min(a.len() as u64) as usize;
        let failed = |side| move |source| DeltaError::ImageBytes { side, off, len: len as u64, source };
        new.read_exact_at(&mut a[..len], off).map_err(failed(Side::New))?;
        let both = old_len.saturating_sub(off).min(len as u64) as usize;
        if both > 0 {
            old.read_exact_at(&mut b[..both], off).map_err(failed(Side::Old))?;
        }
        hasher.update(&a[..len]);
        let is_other = |(idx, unit): &(usize, &[u8])| {
            b[..both].get(idx * CHANGED_UNIT..idx * CHANGED_UNIT + unit.len()) != Some(*unit)
        };
        changed +=
            a[..len].chunks(CHANGED_UNIT).enumerate().filter(is_other).map(|(_, unit)| unit.len() as u64).sum::<u64>();
        off += len as u64;
    }
    Ok((*hasher.finalize().as_bytes(), changed))
}
