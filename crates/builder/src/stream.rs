//! Contents that come once: they are stored as they come, before the tree that has the files is complete.
//!
//! A scan runs on a thread of its own and gives contents to an [`Intake`], which divides them into pieces. From there
//! on they take the way of all text (`store`). When the scan ends, its tree says which node has which contents.

mod divider;

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::thread;

use crate::context::Context;
use crate::context::clock::{Phase, PhaseClock};
use crate::context::ledger::Ledger;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::Format;
use crate::inodes::Inodes;
use crate::options::BuildOptions;
use crate::out::Out;
use crate::pack::append::{AppendedData, Appender};
use crate::pack::{Stored, StoredData};
use crate::plan::Plan;
use crate::plan::file::{FileHoles, FilePlan, Storage};
use crate::plan::file_list::FileIndex;
use crate::plan::planner::Decided;
use crate::plan::survey::Survey;
use crate::read::look::Looker;
use crate::read::{PIECE_COST, Piece, ReadRequest, Unread};
use crate::store::{Store, StoredTree, with_store};
use crate::write::superblock::Header;
use divider::{Arrival, Divider};
use kiln_format::compr_cfg::ComprCfgs;
use kiln_parallel::channel::{self, Receiver, Sender};
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{Intake, Kind, Tree};

/// Groups of arrivals between the scan and the readers of their text.
const GROUPS: usize = 1;

/// Contents that were stored, for [`build_stored`](crate::build_stored).
pub struct StoredStream {
    decided: Decided,
    holes: HashMap<u32, FileHoles>,
    data: StoredData,
    appended: AppendedData,
    /// Phases so far.
    pub(crate) phases: Vec<Phase>,
}

/// Stores the contents of a source that can give them only once: `scan` gives them to an intake, in any order, and
/// returns what it has found. Then [`build_stored`](crate::build_stored) builds the image of a tree that has them.
///
/// Options by path or node do not apply, and nothing is reused from a base. If the build fails, the flag of `control`
/// that ends it is set until `scan` returns, which may be waiting for a stream.
///
/// # Errors
/// Those of [`build`](crate::build). The inner error is that of `scan`.
pub fn store_stream<T: Send, E: Send>(
    out: Out<'_>,
    options: &BuildOptions,
    control: &Control<'_>,
    scan: impl FnOnce(&mut dyn Intake) -> Result<T, E> + Send,
) -> Result<Result<(T, StoredStream), E>, BuildError> {
    let (clock, ledger) = (PhaseClock::start(), Ledger::default());
    let format = &Format::of(options, None)?;
    let (_, data) = begin(out, format)?;
    // The files have no names yet.
    let tree = &Tree::default();
    let context = Context { tree, format, control, ledger: &ledger, previous: None };
    let survey = Survey::of_stream(format);
    let outcome = with_store(&survey, data, 0, context, |store| {
        thread::scope(|scope| {
            let (send, receive) = channel::bounded(GROUPS);
            let scanner = move || run_scan(scan, format, send);
            let failed = |source| BuildError::Write { action: "start a thread", source };
            let scanner = thread::Builder::new().spawn_scoped(scope, scanner).map_err(failed)?;
            let mut intake = Taken { store, holes: HashMap::new(), count: 0, has_stopped: false };
            // The receiver ends with this call: then nothing takes contents any more.
            let taken = intake.take_all(receive, context);
            let scanned = scanner.join().unwrap_or_else(|panic| resume_unwind(panic));
            if intake.has_stopped {
                control.stop.store(false, Ordering::Relaxed);
            }
            taken?;
            let found = match scanned {
                Ok(found) => found,
                Err(error) => return Ok(Err(error)),
            };
            let (decided, data, appender) = intake.store.finish()?;
            Ok(Ok((found, decided, data, appender.stop(), intake.holes)))
        })
    })?;
    clock.finish("store");
    let phases = clock.phases();
    let stored =
        |(found, decided, data, appended, holes)| (found, StoredStream { decided, holes, data, appended, phases });
    Ok(outcome.map(stored))
}

/// Runs a scan whose contents go to `send`.
fn run_scan<T, E>(
    scan: impl FnOnce(&mut dyn Intake) -> Result<T, E>,
    format: &Format,
    send: Sender<Vec<Arrival>>,
) -> Result<T, E> {
    let mut divider = Divider::new(format, send);
    let found = scan(&mut divider)?;
    divider.finish();
    Ok(found)
}

/// Contents that were stored so far.
struct Taken<'a, 'b, 'c, 'w> {
    store: Store<'a, 'b, 'c, 'w>,
    holes: HashMap<u32, FileHoles>,
    count: u32,
    /// The flag that ends the build was set here.
    has_stopped: bool,
}

/// An arrival whose text was examined.
enum Seen {
    File(FilePlan, FileHoles),
    Piece(Box<(ReadRequest, Result<Piece, Unread>)>),
}

impl Taken<'_, '_, '_, '_> {
    /// Stores what arrives. Text is examined on all cores.
    fn take_all(&mut self, receive: Receiver<Vec<Arrival>>, context: Context<'_>) -> Result<(), BuildError> {
        let Context { format, control, .. } = context;
        let cost = |arrival: &Arrival| match arrival {
            Arrival::Piece(_, text) => PIECE_COST + text.len() as u64,
            Arrival::File(..) | Arrival::Lost(_) => PIECE_COST,
        };
        let arrivals = receive.flatten().map(|job| Costed { cost: cost(&job), job });
        let worker = || {
            let mut looker = Looker::new(format);
            Ok(move |arrival| {
                control.check()?;
                Ok::<_, BuildError>(match arrival {
                    Arrival::File(file, holes) => Seen::File(file, holes),
                    Arrival::Piece(request, text) => {
                        Seen::Piece(Box::new((request.clone(), Ok(looker.piece(request, text)))))
                    }
                    Arrival::Lost(request) => Seen::Piece(Box::new((request, Err(Unread::Told)))),
                })
            })
        };
        ordered::run(format.work.threads, format.work.read_ahead(), arrivals, worker, |seen| {
            // A scan that waits for a stream must not keep the build from failing.
            let taken = self.take(seen);
            if taken.is_err() {
                self.has_stopped = !control.stop.swap(true, Ordering::Relaxed);
            }
            taken
        })
    }

    fn take(&mut self, seen: Seen) -> Result<(), BuildError> {
        match seen {
            Seen::File(file, holes) => {
                self.store.add_file(file);
                if !holes.kept.is_empty() || holes.filled_bytes > 0 {
                    self.holes.insert(self.count, holes);
                }
                self.count += 1;
                Ok(())
            }
            Seen::Piece(piece) => self.store.take(piece.0, piece.1),
        }
    }
}

impl StoredStream {
    /// Gives the contents to the nodes of the tree that have them.
    ///
    /// # Errors
    /// A tree that is not that of the contents.
    pub(crate) fn attach(
        mut self,
        inodes: &Inodes,
        context: Context<'_>,
    ) -> Result<(StoredTree, AppendedData), BuildError> {
        let Context { tree, format, .. } = context;
        let mut index = FileIndex::new(tree.len());
        let mut is_named = vec![false; self.decided.files.len()];
        for node in tree.walk() {
            let Kind::File { len, content, .. } = tree.node(node).kind else { continue };
            if index.get(node).is_some() {
                continue;
            }
            let known = content.0 as usize;
            let stranger = || BuildError::Internal(format!("node {} has contents that were not stored", node.0));
            let file = self.decided.files.get(known).filter(|file| file.len == len).ok_or_else(stranger)?.clone();
            if inodes.inode_len(node) > file.inode_len as usize {
                return Err(BuildError::Internal(format!("the inode of node {} is longer than expected", node.0)));
            }
            match std::mem::replace(&mut is_named[known], true) {
                false => {
                    index.set(node, known as u32);
                    self.decided.files[known].node = node;
                }
                // Another inode of the same contents.
                true => {
                    index.set(node, self.decided.files.len() as u32);
                    self.copy(known as u32, FilePlan { node, ..file });
                    is_named.push(true);
                }
            }
        }
        self.drop_nameless(&is_named);
        let Self { mut decided, holes, data, appended, .. } = self;
        let mut survey = Survey::of_stream(format);
        survey.index = index;
        let filled = holes.iter().map(|(file, holes)| (*file, holes.filled_bytes)).filter(|(_, bytes)| *bytes > 0);
        survey.filled_holes = filled.collect();
        let kept = holes.into_iter().map(|(file, holes)| (file, holes.kept)).filter(|(_, kept)| !kept.is_empty());
        survey.holes = kept.collect();
        let digests = std::mem::take(&mut decided.digests);
        let plan = Plan::new(survey, decided, data.fragments_len, format);
        Ok((StoredTree { plan, digests, data }, appended))
    }

    /// Adds a file that shares the data of file `known`.
    fn copy(&mut self, known: u32, file: FilePlan) {
        let copy = self.decided.files.len() as u32;
        let storage = match file.storage {
            Storage::Empty | Storage::Duplicate(_) => file.storage,
            _ => Storage::Duplicate(known),
        };
        if let Some(digest) = self.decided.digests.get(&known).copied() {
            self.decided.digests.insert(copy, digest);
        }
        self.decided.files.push(FilePlan { storage, ..file });
        self.data.stored.push(Stored::Nothing);
    }

    /// Leaves out files that no name leads to: others replaced them. The first file that shares the data of one of
    /// them takes its place.
    fn drop_nameless(&mut self, is_named: &[bool]) {
        let files = &mut self.decided.files;
        let mut heirs = HashMap::<u32, u32>::new();
        for idx in (0..files.len()).filter(|idx| is_named[*idx]) {
            let Storage::Duplicate(first) = files[idx].storage else { continue };
            if is_named[first as usize] {
                continue;
            }
            let heir = *heirs.entry(first).or_insert(idx as u32);
            if heir != idx as u32 {
                files[idx].storage = Storage::Duplicate(heir);
                continue;
            }
            files[idx] = FilePlan { node: files[idx].node, ..files[first as usize].clone() };
            self.data.stored.swap(idx, first as usize);
            if let Some(holes) = self.holes.remove(&first) {
                self.holes.insert(heir, holes);
            }
        }
        for idx in (0..files.len()).filter(|idx| !is_named[*idx]) {
            files[idx].storage = Storage::LeftOut;
            self.data.stored[idx] = Stored::Nothing;
            self.holes.remove(&(idx as u32));
        }
    }
}

/// Returns the header of an image of a stream, and what appends data behind it.
///
/// # Errors
/// Those of [`crate::build`].
pub(crate) fn begin<'b>(out: Out<'b>, format: &Format) -> Result<(Header, Appender<'b>), BuildError> {
    let header = Header::new(usize::from(out.blob.is_some()), ComprCfgs::default(), format)?;
    let data = Appender::new(out, header.blocks, header.devices, format);
    Ok((header, data))
}
