//! Facts about all files that are known before any text is read: order, places of stored data, holes.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::context::Context;
use crate::error::BuildError;
use crate::format::Format;
use crate::inodes::Inodes;
use crate::options::Dedupe;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::file_list::{FileIndex, FileList};
use crate::plan::hole::{self, Holes};
use crate::plan::hot;
use crate::plan::placed::{self, PlacedFiles};
use crate::plan::reuse::{self, Gaps, ReusedFiles};
use crate::plan::stored::{self, StoredFiles};
use crate::read::{Hashes, PIECE_COST};
use kiln_digest::contents::ContentHash;
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{Kind, Tree, Version};

/// All files before any of them is read.
pub(crate) struct Survey {
    /// Regular files: those with an order of their own, then the others in walk order. Each is stored as it would be
    /// alone.
    pub files: Vec<FilePlan>,
    /// Index of each node's file.
    pub index: FileIndex,
    /// Number of files that have an order of their own.
    pub ordered_count: u32,
    /// Places of files that are on devices already.
    pub placed: PlacedFiles,
    /// Data reused from a base.
    pub reused: ReusedFiles,
    /// Ranges to be stored in files that are partly reused.
    pub gaps: Gaps,
    /// Holes that are stored as holes, by file.
    pub holes: HashMap<u32, Holes>,
    /// Bytes of holes that are stored as zeros, by file.
    pub filled_holes: HashMap<u32, u64>,
    /// Function of the digests that are stored in the image.
    pub digest_hash: Option<ContentHash>,
    /// True if contents are compared with digests that are stored for them.
    compares_digests: bool,
    /// The files come with their contents, and none of them can be opened.
    pub is_stream: bool,
    /// Lengths that several files have.
    peers: HashSet<u64>,
}

impl Survey {
    /// Knows nothing yet of files that come with their contents.
    pub(crate) fn of_stream(format: &Format) -> Self {
        Self {
            files: Vec::new(),
            index: FileIndex::default(),
            ordered_count: 0,
            placed: PlacedFiles::default(),
            reused: ReusedFiles::default(),
            gaps: Gaps::default(),
            holes: HashMap::new(),
            filled_holes: HashMap::new(),
            digest_hash: format.metadata.digest_hash,
            compares_digests: false,
            is_stream: true,
            peers: HashSet::new(),
        }
    }

    /// Surveys the files of the tree.
    ///
    /// # Errors
    /// Files of a base or of devices that cannot be used; an interruption.
    pub(crate) fn make(inodes: &Inodes, context: Context<'_>) -> Result<Self, BuildError> {
        let format = context.format;
        let FileList { files, index, ordered_count } = FileList::of(inodes, context);
        let StoredFiles { elsewhere, reused, previous } = stored::look_up(&files, context)?;
        let (files, placed) = placed::plan(files, elsewhere, context)?;
        let (files, mut reused, gaps) = reuse::plan(files, reused, previous, context)?;
        reused.hot = hot::runs(&format.layout.hot, (&files, &index), &reused, format.block_bits);
        let compares_digests = context.tree.stores().digests.is_some();
        let found = Self { files, index, ordered_count, placed, reused, gaps, ..Self::of_stream(format) };
        let survey = Self { compares_digests, ..found };
        let mut survey = Self { is_stream: false, ..survey }.with_holes(context)?;
        if format.dedupe != Dedupe::Off {
            survey.find_peers();
        }
        Ok(survey)
    }

    /// Returns the holes of a file, as it is to be stored.
    pub(crate) fn holes(&self, file: u32) -> &[Range<u64>] {
        self.holes.get(&file).map_or(&[], |holes| holes)
    }

    /// Returns the functions by which a file is hashed: to store its digest, or to compare it with a stored one.
    pub(crate) fn hashes(&self, file: &FilePlan, tree: &Tree) -> Hashes {
        match self.compares_digests {
            true => Hashes::of_file(tree, file.node, self.digest_hash),
            false => Hashes { own: self.digest_hash, stored: None },
        }
    }

    /// Returns true if other files have the length of this one.
    pub(crate) fn has_peers(&self, file: &FilePlan) -> bool {
        self.peers.contains(&file.len)
    }

    /// Finds the holes of files that may have some, and decides how these are stored.
    fn with_holes(mut self, context: Context<'_>) -> Result<Self, BuildError> {
        let Context { tree, format, control, .. } = context;
        let is_new = |file: &FilePlan| {
            use Storage::{Empty, LeftOut, Placed, Reused};
            !matches!(file.storage, Empty | LeftOut | Placed { .. } | Reused { .. })
        };
        let is_sparse = |file: &FilePlan| matches!(tree.node(file.node).kind, Kind::File { sparse: true, .. });
        let sparse = (0..).zip(&self.files).filter(|(_, file)| is_new(file) && is_sparse(file));
        let jobs: Vec<_> = sparse.map(|(idx, file)| Costed { job: (idx, file.node, file.len), cost: 1 }).collect();
        let worker = || {
            Ok(|(idx, node, len): (u32, _, u64)| {
                control.check()?;
                // An error shows again when the file is read.
                let found = tree.open(node).or_else(|_| tree.open_version(node, Version::Changed));
                let holes = found.ok().and_then(|mut content| hole::find(&mut *content, len, format.block_bits).ok());
                Ok::<_, BuildError>((idx, holes.unwrap_or_default()))
            })
        };
        let mut found = Vec::new();
        ordered::run(format.work.readers, PIECE_COST, jobs.into_iter(), worker, |one| {
            found.push(one);
            Ok(())
        })?;
        for (idx, holes) in found {
            let file = &mut self.files[idx as usize];
            let holes = file.with_holes(holes, format);
            self.filled_holes.extend(Some((idx, holes.filled_bytes)).filter(|(_, bytes)| *bytes > 0));
            self.holes.extend(Some((idx, holes.kept)).filter(|(_, kept)| !kept.is_empty()));
        }
        Ok(self)
    }

    /// Finds files of equal lengths: they may be equal. Equal files share what is stored for the first, and each has
    /// its own copy of the tail beside its inode; so there must be room beside the largest inode of them.
    fn find_peers(&mut self) {
        let mut lens = HashMap::<u64, (u32, u32)>::new();
        for file in self.files.iter().filter(|file| file.len > 0) {
            let (count, inode_len) = lens.entry(file.len).or_default();
            *count += 1;
            *inode_len = file.inode_len.max(*inode_len);
        }
        lens.retain(|_, (count, _)| *count > 1);
        for file in &mut self.files {
            if let Some((_, inode_len)) = lens.get(&file.len) {
                file.inode_len = *inode_len;
            }
        }
        self.peers = lens.into_keys().collect();
    }
}
