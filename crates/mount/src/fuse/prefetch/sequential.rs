//! Sequential prefetch across files: a process that opens files in readdir order will open the
//! following ones, too. The kernel reads ahead within a file, and cannot see this.
//!
//! A *stream* is such a process in a directory, identified by the file that it will read next if it
//! continues. Each stream that continues earns credit, and the more credit there is, the more files
//! are predicted; any other request for a listed file halves it. A process that reads the first
//! file of a listing may be about to read all of them, or not: a prediction for it costs some
//! credit. Short directories would never return that credit, as no file in them would be requested.
//! So every fourth prediction that reaches the end of its directory leaves out the last file as a
//! *holdout*: a process that reads on requests it. A request for a file that was pushed shows that
//! the push came too late, or that several processes read one directory: that costs more than many
//! predictions earn.

use super::directory_order::{DirectoryOrder, Request};

/// Number of streams that are remembered: processes, and directories that one process has not
/// finished, as it may be in their subdirectories.
const STREAMS: usize = 16;
/// Credit for a stream that continues. With that much more credit, twice as many files are
/// predicted.
const GAIN: i32 = 4;
/// Credit from which on files are predicted, and largest credit.
const CREDIT_MIN: i32 = 3 * GAIN;
const CREDIT_MAX: i32 = 6 * GAIN;
const PREDICTED_MAX: usize = 1 << (CREDIT_MAX / GAIN);
/// Cost of a redundant push, and largest debt.
const REDUNDANT_LOSS: i32 = 16 * GAIN;
const DEBT_MAX: i32 = 256 * GAIN;
/// Number of predictions that begin with a first file and reach the end, per holdout.
const HOLDOUT_PERIOD: u32 = 4;

/// Streams of a mount.
#[derive(Default)]
pub(super) struct Sequential {
    /// Next file of each stream, by node id.
    streams: [u64; STREAMS],
    /// File of the last request.
    last: u64,
    /// Stream that the next new one replaces.
    oldest: usize,
    credit: i32,
    /// Number of predictions that began with the first file of a directory.
    begun: u32,
}

/// Files that will be read soon.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Predicted {
    /// Node ids, in order.
    pub(super) files: Vec<u64>,
    stream: usize,
}

impl Sequential {
    /// Predicts the files after `file`, which was requested from its start on. They are recorded as
    /// pushed.
    pub(super) fn predict(&mut self, order: &mut DirectoryOrder, file: u64, request: Request) -> Predicted {
        // A listing may come after the first requests for its files.
        let follows = self.last != 0 && order.next(self.last) == file;
        self.last = file;
        let known = self.streams.iter().position(|&next| next == file);
        let stream = known.or_else(|| follows.then(|| self.new_stream()));
        self.credit = match (request, stream) {
            (Request::Redundant, _) => (self.credit.min(0) - REDUNDANT_LOSS).max(-DEBT_MAX),
            (_, Some(_)) => CREDIT_MAX.min(self.credit + GAIN),
            (Request::Unlisted | Request::First, None) => self.credit,
            _ => self.credit.min(self.credit / 2),
        };
        if request == Request::Unlisted {
            return Predicted::default();
        }
        let is_trusted = (stream.is_some() || request == Request::First) && self.credit >= CREDIT_MIN;
        let count = if is_trusted { 1 << (self.credit / GAIN) } else { 0 };
        let mut files = Vec::with_capacity(count);
        let mut next = order.next(file);
        // A file with several names may follow itself.
        while files.len() < count && next != 0 && next != file {
            order.note_pushed(next);
            files.push(next);
            next = order.next(next);
        }
        if stream.is_none() && !files.is_empty() {
            self.credit -= 1;
            self.begun = self.begun.wrapping_add(1);
            if next == 0 && self.begun.is_multiple_of(HOLDOUT_PERIOD) {
                next = files.pop().unwrap_or(0);
                order.note_not_pushed(next);
            }
        }
        let stream = stream.unwrap_or_else(|| self.new_stream());
        self.streams[stream] = next;
        Predicted { files, stream }
    }

    fn new_stream(&mut self) -> usize {
        self.oldest = (self.oldest + 1) % STREAMS;
        self.oldest
    }

    /// Advances all streams past files that are now in the page cache: they will not be requested.
    pub(super) fn skip_cached(&mut self, order: &mut DirectoryOrder) {
        for next in &mut self.streams {
            // Files with several names may follow each other in a circle.
            for _ in 0..PREDICTED_MAX {
                if !order.is_cached(*next) {
                    break;
                }
                *next = order.next(*next);
            }
        }
    }

    /// Records that the files of a prediction from `idx` on were not pushed: they will be
    /// requested.
    pub(super) fn note_not_pushed(&mut self, order: &mut DirectoryOrder, predicted: &Predicted, idx: usize) {
        predicted.files[idx..].iter().for_each(|&file| order.note_not_pushed(file));
        self.streams[predicted.stream] = predicted.files[idx];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 1 << 32;

    /// Listings, and the streams that read them.
    struct Scene {
        order: DirectoryOrder,
        sequential: Sequential,
    }

    impl Scene {
        fn new() -> Self {
            Self { order: DirectoryOrder::new(1 << 20), sequential: Sequential::default() }
        }

        /// Lists files with numbers from `first` on.
        fn list(&mut self, dir: u64, first: u64, count: u64) {
            self.order.note_listing(dir, true, &(first..first + count).collect::<Vec<_>>());
        }

        fn read(&mut self, file: u64) -> Predicted {
            let request = self.order.note_request(file);
            self.sequential.predict(&mut self.order, file, request)
        }

        /// Requests files that were not pushed before; all predicted files are pushed. Returns the
        /// files that were requested.
        fn asked(&mut self, reads: impl IntoIterator<Item = u64>) -> Vec<u64> {
            let (mut had, mut asked) = (Vec::new(), Vec::new());
            for file in reads {
                if !had.contains(&file) {
                    asked.push(file);
                    had.extend(self.read(file).files);
                }
            }
            asked
        }
    }

    #[test]
    fn a_stream_that_goes_on_gets_more_and_more() {
        let mut scene = Scene::new();
        scene.list(DIR, 100, 50);
        scene.order.note_listing(DIR, false, &(150..300).collect::<Vec<_>>());
        assert_eq!(scene.asked(100..300), [100, 101, 102, 103, 112, 129, 162, 227, 292]);
        // The next directory has its credit from the beginning.
        scene.list(DIR + 1, 1000, 60);
        assert_eq!(scene.asked(1000..1060), [1000]);
    }

    #[test]
    fn a_walk_through_short_directories_gets_all_files_but_holdouts() {
        let mut scene = Scene::new();
        let mut asked_for = 0;
        for dir in 0..1000 {
            scene.list(DIR + dir, dir * 100 + 1, 6);
            asked_for += scene.asked(dir * 100 + 1..dir * 100 + 7).len();
        }
        assert!(asked_for <= 1000 + 1000 / HOLDOUT_PERIOD as usize + 10, "{asked_for}");
    }

    #[test]
    fn requests_for_first_files_alone_get_little() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 50);
        scene.asked(1..51);
        let given = (1..1000).map(|dir| {
            scene.list(DIR + dir, dir * 100, 20);
            scene.read(dir * 100).files.len()
        });
        assert!(given.sum::<usize>() < CREDIT_MAX as usize * 20);
    }

    #[test]
    fn redundant_pushes_end() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 5000);
        let given = (1..5000).map(|file| scene.read(file).files.len());
        assert!(given.sum::<usize>() < 5000 / 10);
    }

    #[test]
    fn subdirectories_do_not_interrupt() {
        let mut scene = Scene::new();
        scene.list(DIR, 100, 100);
        scene.asked(100..129);
        scene.list(DIR + 1, 500, 2);
        assert_eq!(scene.asked(500..502), [500]);
        assert_eq!(scene.asked(129..146), [129]);
    }

    #[test]
    fn nothing_is_predicted_for_requests_at_random() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 1000);
        for read in 1..5000 {
            assert!(scene.read(read * 377 % 1009).files.is_empty());
        }
        // Nor for files without a listing.
        assert_eq!(scene.asked(5000..5100).len(), 100);
    }

    #[test]
    fn what_was_not_pushed_is_expected() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 99);
        (1..4).for_each(|file| assert!(scene.read(file).files.is_empty()));
        let predicted = scene.read(4);
        assert_eq!(predicted.files, (5..13).collect::<Vec<_>>());
        scene.sequential.note_not_pushed(&mut scene.order, &predicted, 2);
        assert_eq!(scene.read(7).files.len(), 16);
    }

    #[test]
    fn streams_go_on_behind_files_that_were_pushed_as_siblings() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 99);
        (1..4).for_each(|file| assert!(scene.read(file).files.is_empty()));
        (4..9).for_each(|file| scene.order.note_pushed(file));
        scene.sequential.skip_cached(&mut scene.order);
        assert_eq!(scene.read(9).files, (10..18).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_of_several_names_is_not_pushed_to_its_own_reader() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 50);
        scene.asked(1..51);
        for names in [vec![1001, 1001], vec![1001, 1002, 1003, 1001, 1002, 1003]] {
            scene.order.note_listing(DIR + 1, true, &names);
            for file in [1001, 1002, 1003].repeat(20) {
                let files = scene.read(file).files;
                assert!(!files.contains(&file) && files.len() <= PREDICTED_MAX, "{file}: {files:?}");
            }
        }
    }
}
