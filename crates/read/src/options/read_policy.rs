//! The read policy: what an image does beyond decoding what it is asked for. Each part is chosen on
//! its own, and asked in one place.

use crate::source::latency::Latency;

/// Policy of reading: one part for each independent property of the sources and of the consumer.
///
/// [`ReadPolicy::default`] is for programs that read local files, [`ReadPolicy::for_page_cache`]
/// for a server below a kernel's page cache. Others are combinations. The contents are the same
/// under each. A source that is far away, read by a program:
///
/// ```
/// use kiln_read::{ImageOptions, ReadPolicy, Readahead};
///
/// let policy = ReadPolicy::default().with_readahead(Readahead::Image);
/// let options = ImageOptions::default().with_policy(policy);
/// # assert_eq!(options.policy.readahead, Readahead::Image);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadPolicy {
    /// Layer that reads ahead.
    pub readahead: Readahead,
    /// Time that decoded extents stay in the cache.
    pub retention: Retention,
    /// Announcements to the sources of bytes that a long read, or a batch of reads, fetches later.
    pub prefetch: SourcePrefetch,
    /// Memory for decodes that run at the same time.
    pub decode_memory: DecodeMemory,
    /// Latency that the sources measure. Without it, no fetch counts as slow.
    pub latency: Option<Latency>,
}

/// The layer that detects sequential reads, and announces what follows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readahead {
    /// The operating system, which reads ahead in the files that the sources are. A read fetches at
    /// once what its source wants fetched at once
    /// ([`ReadAt::fetch_max_len`](crate::ReadAt::fetch_max_len)).
    #[default]
    System,
    /// The image: it tells the sources what comes after sequential reads across files, and the next
    /// steps of strides while fetches are [slow](crate::Image::is_slow). [Files](crate::FileSource)
    /// are then opened without the readahead of the system. A read fetches up to 1 MiB of encoded
    /// pclusters at once.
    Image,
}

/// Time that decoded extents stay in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Until others are used more: the consumer may read the same bytes again.
    #[default]
    ByUse,
    /// Until all bytes of the extent were consumed: the consumer is itself a cache, and does not
    /// ask twice.
    UntilConsumed,
}

/// Announcements to sources of bytes that will be fetched later
/// ([`ReadAt::will_need`](crate::ReadAt::will_need)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePrefetch {
    /// They are not.
    Off,
    /// They are told what [`Image::read_many`](crate::Image::read_many) wants next, and, if the
    /// image reads ahead, what the rest of a long read wants.
    #[default]
    Announced,
}

/// Memory for decodes that run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecodeMemory {
    /// As much as each thread needs: the consumer decides how many threads decode.
    #[default]
    PerThread,
    /// Half as much as the cache together: threads wait for their turn. For a server, which decodes
    /// for threads of other programs.
    HalfOfCache,
}

impl ReadPolicy {
    /// Returns the policy for a server below a kernel's page cache (FUSE). The kernel keeps what it
    /// gets, and reads ahead in files itself, so a read fetches what it asks for. The image reads
    /// ahead across files, and drops an extent once all its bytes are consumed.
    pub fn for_page_cache() -> Self {
        Self {
            readahead: Readahead::Image,
            retention: Retention::UntilConsumed,
            prefetch: SourcePrefetch::Announced,
            decode_memory: DecodeMemory::HalfOfCache,
            latency: None,
        }
    }

    /// Returns the same policy with this readahead.
    pub fn with_readahead(self, readahead: Readahead) -> Self {
        Self { readahead, ..self }
    }

    /// Returns the same policy with this retention.
    pub fn with_retention(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    /// Returns the same policy with this prefetch.
    pub fn with_prefetch(self, prefetch: SourcePrefetch) -> Self {
        Self { prefetch, ..self }
    }

    /// Returns the same policy with this much memory for decodes.
    pub fn with_decode_memory(self, decode_memory: DecodeMemory) -> Self {
        Self { decode_memory, ..self }
    }

    /// Returns the same policy, with latency that [`TimedSource`](crate::TimedSource)s note.
    /// [`ImageSources`](crate::ImageSources) and [`Image::open_path`](crate::Image::open_path) make
    /// timed sources; [`Image::open`](crate::Image::open) takes sources as they are.
    pub fn with_latency(self, latency: Latency) -> Self {
        Self { latency: Some(latency), ..self }
    }
}
