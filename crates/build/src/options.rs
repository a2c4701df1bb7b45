//! What a caller chooses.

use kiln_codec::Spec;
use kiln_format::{BlockBits, KernelVersion};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::BuildError;

/// Which data is stored once though it occurs several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedupe {
    /// None.
    Off,
    /// Whole files of equal contents.
    Files,
}

/// How to build an image. The defaults store everything uncompressed.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Compression of file data; `None` stores it.
    pub compression: Option<Spec>,
    /// Worker threads, at least 1. The image does not depend on it.
    pub threads: usize,
    /// Use only what this kernel can mount; `None`: whatever the other options need.
    pub kernel: Option<KernelVersion>,
    /// Deduplication.
    pub dedupe: Dedupe,
    /// The image's UUID; `None` derives it from the contents.
    pub uuid: Option<[u8; 16]>,
    /// Label, padded with zeros; at most 15 bytes, so that kernels find a zero.
    pub label: [u8; 16],
    /// Seconds since 1970: later mtimes become this, and it is recorded as the time of building.
    pub source_date_epoch: Option<i64>,
    /// Skip inputs that cannot be read, and list them in the summary.
    pub keep_going: bool,
    /// Where a nameless scratch file may be made if the tails of many small files outgrow memory.
    pub scratch_dir: PathBuf,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            compression: None,
            threads: 1,
            kernel: None,
            dedupe: Dedupe::Files,
            uuid: None,
            label: [0; 16],
            source_date_epoch: None,
            keep_going: false,
            scratch_dir: PathBuf::from("."),
        }
    }
}

impl BuildOptions {
    /// The block size: 4 KiB, the page size of nearly all machines, as kernels before 6.4 require.
    pub(crate) fn block_bits(&self) -> BlockBits {
        BlockBits::DEFAULT
    }

    /// # Errors
    /// Options that contradict each other, before anything is read.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let block_len = self.block_bits().len();
        match self.compression {
            Some(Spec { pcluster_len: len, .. }) if !u64::from(len).is_multiple_of(block_len) => {
                Err(BuildError::PclusterLen { len, block_len })
            }
            _ => Ok(()),
        }
    }

    /// Whether the chosen kernel, if one is chosen, is `version` or newer.
    pub(crate) fn kernel_has(&self, version: KernelVersion) -> bool {
        self.kernel.is_none_or(|kernel| kernel >= version)
    }
}

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of input that are done.
    pub done_bytes: u64,
    /// Bytes of input in total.
    pub total_bytes: u64,
}

/// The caller's hold on a running build.
pub struct Control<'a> {
    /// Ends the build early with [`BuildError::Interrupted`] once set.
    pub stop: &'a AtomicBool,
    /// Called from one thread as data is written.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

impl Control<'_> {
    /// # Errors
    /// [`BuildError::Interrupted`] once the caller has asked to stop.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.stop.load(Ordering::Relaxed) { Err(BuildError::Interrupted) } else { Ok(()) }
    }
}
