//! Which files will be read next: who reads the files of a directory in the order in which it was listed goes on with those that
//! follow. The kernel reads ahead in files, but it does not know this.
//!
//! A *run* is a reader in a directory: the file that he will read next, if he goes on. Each reader who does earns credit, and the more
//! there is, the more is foretold; each other read of a listed file halves it. Who reads the first file of a listing may be about to
//! read all of them, or not: what is foretold to him costs some credit. Short directories would never give it back, for nothing in them
//! would be asked for. So of every fourth the last file is left out: who reads on asks for it. Whoever asks for a file that was
//! foretold did not wait for it, as several readers of one directory do not, or came too late: that costs more than many others earn.

use super::directory_order::{Asked, Listed};

/// Readers, and directories that one reader has not finished: he may be in their subdirectories.
const RUNS: usize = 16;
/// Credit for a reader who goes on; so many make twice as much be foretold.
const EARNED: i32 = 4;
/// Credit from which on anything is foretold, and what there is at most.
const CREDIT_MIN: i32 = 3 * EARNED;
const CREDIT_MAX: i32 = 6 * EARNED;
const FORETOLD_MAX: usize = 1 << (CREDIT_MAX / EARNED);
/// What a file costs that was foretold in vain, and the greatest debt.
const IN_VAIN: i32 = 16 * EARNED;
const DEBT_MAX: i32 = 256 * EARNED;
/// One in so many directories is not foretold to its end.
const PROBES: u32 = 4;

/// Who reads what was listed in order.
#[derive(Default)]
pub struct Ahead {
    runs: [u64; RUNS],
    /// The file that was read last.
    last: u64,
    /// The run that is given up for the next reader.
    oldest: usize,
    credit: i32,
    /// Directories that were foretold from their first file on.
    begun: u32,
}

/// Files that will be read soon.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Node ids, in order.
    pub files: Vec<u64>,
    run: usize,
}

impl Ahead {
    /// Foretell what follows `file`, which somebody reads from its start on.
    pub fn read(&mut self, listed: &mut Listed, file: u64, asked: Asked) -> Foretold {
        // A listing may come after the first reads of its files.
        let follows = self.last != 0 && listed.next(self.last) == file;
        self.last = file;
        let run = self.runs.iter().position(|&next| next == file).or_else(|| follows.then(|| self.new_run()));
        self.credit = match (asked, run) {
            (Asked::InVain, _) => (self.credit.min(0) - IN_VAIN).max(-DEBT_MAX),
            (_, Some(_)) => CREDIT_MAX.min(self.credit + EARNED),
            (Asked::Unlisted | Asked::First, None) => self.credit,
            _ => self.credit.min(self.credit / 2),
        };
        if asked == Asked::Unlisted {
            return Foretold::default();
        }
        let is_trusted = (run.is_some() || asked == Asked::First) && self.credit >= CREDIT_MIN;
        let count = if is_trusted { 1 << (self.credit / EARNED) } else { 0 };
        let mut files = Vec::with_capacity(count);
        let mut next = listed.next(file);
        // A file of several names may follow itself.
        while files.len() < count && next != 0 && next != file {
            listed.give(next);
            files.push(next);
            next = listed.next(next);
        }
        if run.is_none() && !files.is_empty() {
            self.credit -= 1;
            self.begun = self.begun.wrapping_add(1);
            if next == 0 && self.begun.is_multiple_of(PROBES) {
                next = files.pop().unwrap_or(0);
                listed.expect(next);
            }
        }
        let run = run.unwrap_or_else(|| self.new_run());
        self.runs[run] = next;
        Foretold { files, run }
    }

    fn new_run(&mut self) -> usize {
        self.oldest = (self.oldest + 1) % RUNS;
        self.oldest
    }

    /// Readers will not ask for files that were given meanwhile.
    pub fn pass_over_given(&mut self, listed: &mut Listed) {
        for next in &mut self.runs {
            // Files of several names may follow each other for ever.
            for _ in 0..FORETOLD_MAX {
                if !listed.is_there(*next) {
                    break;
                }
                *next = listed.next(*next);
            }
        }
    }

    /// Expect the files from `idx` on of those foretold to be asked for, as they were not handed over.
    pub fn left_out(&mut self, listed: &mut Listed, foretold: &Foretold, idx: usize) {
        foretold.files[idx..].iter().for_each(|&file| listed.expect(file));
        self.runs[foretold.run] = foretold.files[idx];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 1 << 32;

    /// What was listed, and who reads it.
    struct Scene {
        listed: Listed,
        ahead: Ahead,
    }

    impl Scene {
        fn new() -> Self {
            Self { listed: Listed::new(1 << 20), ahead: Ahead::default() }
        }

        /// A listing of files with numbers from `first` on.
        fn list(&mut self, dir: u64, first: u64, count: u64) {
            self.listed.list(dir, true, &(first..first + count).collect::<Vec<_>>());
        }

        fn read(&mut self, file: u64) -> Foretold {
            let asked = self.listed.ask(file);
            self.ahead.read(&mut self.listed, file, asked)
        }

        /// Read what is not handed over; everything that is foretold is. Returns the files that were asked for.
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
    fn who_reads_on_is_given_more_and_more() {
        let mut scene = Scene::new();
        scene.list(DIR, 100, 50);
        scene.listed.list(DIR, false, &(150..300).collect::<Vec<_>>());
        assert_eq!(scene.asked(100..300), [100, 101, 102, 103, 112, 129, 162, 227, 292]);
        // The next one knows it from the beginning.
        scene.list(DIR + 1, 1000, 60);
        assert_eq!(scene.asked(1000..1060), [1000]);
    }

    #[test]
    fn who_walks_through_short_directories_is_given_all_but_a_few() {
        let mut scene = Scene::new();
        let mut asked_for = 0;
        for dir in 0..1000 {
            scene.list(DIR + dir, dir * 100 + 1, 6);
            asked_for += scene.asked(dir * 100 + 1..dir * 100 + 7).len();
        }
        assert!(asked_for <= 1000 + 1000 / PROBES as usize + 10, "{asked_for}");
    }

    #[test]
    fn who_reads_only_first_files_is_given_little() {
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
    fn who_does_not_wait_for_what_is_foretold_is_given_little() {
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
    fn nothing_is_foretold_of_files_here_and_there() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 1000);
        for read in 1..5000 {
            assert_eq!(scene.read(read * 377 % 1009).files, []);
        }
        // Nor of those that nobody has listed.
        assert_eq!(scene.asked(5000..5100).len(), 100);
    }

    #[test]
    fn what_was_left_out_is_expected() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 99);
        (1..4).for_each(|file| assert_eq!(scene.read(file).files, []));
        let foretold = scene.read(4);
        assert_eq!(foretold.files, (5..13).collect::<Vec<_>>());
        scene.ahead.left_out(&mut scene.listed, &foretold, 2);
        assert_eq!(scene.read(7).files.len(), 16);
    }

    #[test]
    fn who_is_given_files_otherwise_goes_on_behind_them() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 99);
        (1..4).for_each(|file| assert_eq!(scene.read(file).files, []));
        (4..9).for_each(|file| scene.listed.give(file));
        scene.ahead.pass_over_given(&mut scene.listed);
        assert_eq!(scene.read(9).files, (10..18).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_of_several_names_is_not_foretold_to_who_reads_it() {
        let mut scene = Scene::new();
        scene.list(DIR, 1, 50);
        scene.asked(1..51);
        for names in [vec![1001, 1001], vec![1001, 1002, 1003, 1001, 1002, 1003]] {
            scene.listed.list(DIR + 1, true, &names);
            for file in [1001, 1002, 1003].repeat(20) {
                let files = scene.read(file).files;
                assert!(!files.contains(&file) && files.len() <= FORETOLD_MAX, "{file}: {files:?}");
            }
        }
    }
}
