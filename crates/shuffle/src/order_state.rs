//! Saved state of an order: about 200 bytes, from which reading continues.

use std::error::Error;
use std::fmt;

use crate::order::{LastBatch, OrderChoices};

/// Version of the algorithm that maps blocks and choices to an order. A different order needs a
/// different version.
pub const ALGORITHM: u32 = 1;

/// Position in an order, and everything on which the order depends. World size, workers and
/// prefetching are not part of it.
///
/// ```
/// use kiln_shuffle::OrderState;
///
/// let fresh = OrderState { n_samples: 1000, batch_global: 64, ..OrderState::default() };
/// let mut running = fresh.clone();
/// running.advance(15);
///
/// // A checkpoint at the end of an epoch continues with the next one.
/// let loaded = running.load(&fresh)?;
/// assert_eq!((loaded.epoch, loaded.position), (1, 0));
///
/// let other = OrderState { seed: 7, ..fresh };
/// assert_eq!(running.check(&other).unwrap_err().to_string(), "seed of the saved state is 0, but that of this order is 7");
/// # Ok::<(), kiln_shuffle::Mismatch>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderState {
    /// [`ALGORITHM`] of the program that saved the state.
    pub algorithm: u32,
    /// Same as [`OrderChoices::seed`].
    pub seed: u64,
    /// Current epoch, counted from 0.
    pub epoch: u64,
    /// Number of samples that all ranks together have taken in this epoch: a multiple of
    /// `batch_global`.
    pub position: u64,
    /// Number of samples in the index.
    pub n_samples: u32,
    /// Same as [`OrderChoices::batch_global`].
    pub batch_global: u32,
    /// Same as [`OrderChoices::lanes`].
    pub lanes: u32,
    /// Same as [`Blocks::block_bytes`](crate::Blocks::block_bytes).
    pub block_bytes: u64,
    /// Same as [`OrderChoices::window_blocks`].
    pub window_blocks: u32,
    /// True if [`OrderChoices::last`] is [`LastBatch::Drop`].
    pub drop_last: bool,
    /// Same as [`OrderChoices::shuffle`].
    pub shuffle: bool,
    /// UUID of the image, which determines how samples are stored.
    pub image_uuid: String,
    /// Digest of the index, which determines the samples.
    pub index_digest: String,
}

impl Default for OrderState {
    /// Returns epoch 0 of no samples, with the default choices.
    fn default() -> Self {
        Self::new(&OrderChoices::default(), 0)
    }
}

/// Error of a saved state with a field that differs from that of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Name of the field in [`OrderState`].
    pub field: &'static str,
    /// Value in this order.
    pub expected: String,
    /// Value in the saved state.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, expected, found } = self;
        match *field {
            "position" => write!(f, "position of the saved state is {found}, but must be {expected}"),
            _ => write!(f, "{field} of the saved state is {found}, but that of this order is {expected}"),
        }
    }
}

impl Error for Mismatch {}

impl OrderState {
    /// Returns the start of an order of `n_samples` samples. `block_bytes`, `image_uuid` and
    /// `index_digest` are left empty for the caller to set.
    pub fn new(choices: &OrderChoices, n_samples: u32) -> Self {
        let OrderChoices { seed, batch_global, lanes, window_blocks, shuffle, last } = *choices;
        Self {
            algorithm: ALGORITHM,
            seed,
            epoch: 0,
            position: 0,
            n_samples,
            batch_global,
            lanes,
            block_bytes: 0,
            window_blocks,
            drop_last: last == LastBatch::Drop,
            shuffle,
            image_uuid: String::new(),
            index_digest: String::new(),
        }
    }

    /// Checks that this saved state belongs to the order of which `expected` is a state. Epoch and
    /// position may differ.
    ///
    /// # Errors
    /// The first field that differs; a position that is not the start of a batch.
    pub fn check(&self, expected: &Self) -> Result<(), Mismatch> {
        macro_rules! same {
            ($($field:ident),*) => {$(
                if self.$field != expected.$field {
                    let [expected, found] = [&expected.$field, &self.$field].map(ToString::to_string);
                    return Err(Mismatch { field: stringify!($field), expected, found });
                }
            )*};
        }
        same!(algorithm, image_uuid, index_digest, n_samples, seed, shuffle, drop_last);
        same!(batch_global, lanes, block_bytes, window_blocks);
        let (batch, end) = (u64::from(self.batch_global.max(1)), self.epoch_len());
        if self.position > end || !self.position.is_multiple_of(batch) {
            let expected = format!("a multiple of {batch} (batch_global) and at most {end}");
            return Err(Mismatch { field: "position", expected, found: self.position.to_string() });
        }
        Ok(())
    }

    /// Returns the state from which an order continues after this saved state: at the start of the
    /// next epoch if this one has ended. `expected` is a state of that order.
    ///
    /// # Errors
    /// The errors of [`OrderState::check`].
    pub fn load(&self, expected: &Self) -> Result<Self, Mismatch> {
        self.check(expected)?;
        let mut state = self.clone();
        state.begin();
        Ok(state)
    }

    /// Returns the number of samples in an epoch if all batches were whole: the last position.
    pub fn epoch_len(&self) -> u64 {
        let Self { batch_global, drop_last, .. } = *self;
        let last = if drop_last { LastBatch::Drop } else { LastBatch::Fill };
        let choices = OrderChoices { batch_global, last, ..OrderChoices::default() };
        choices.steps(self.n_samples).saturating_mul(u64::from(batch_global))
    }

    /// Returns the number of the next batch, counted from 0.
    pub fn step(&self) -> u64 {
        self.position / u64::from(self.batch_global.max(1))
    }

    /// Begins an iteration: in the next epoch if this one was read to its end, so that no epoch is
    /// repeated by accident.
    pub fn begin(&mut self) {
        if self.position > 0 && self.position >= self.epoch_len() {
            (self.epoch, self.position) = (self.epoch.saturating_add(1), 0);
        }
    }

    /// Sets the epoch. The position in the current epoch stays, so that a loop that sets the epoch
    /// after a state was loaded continues there. Another epoch, or one that was read to its end,
    /// begins at its start.
    pub fn set_epoch(&mut self, epoch: u64) {
        if epoch != self.epoch || self.position >= self.epoch_len() {
            (self.epoch, self.position) = (epoch, 0);
        }
    }

    /// Records that all ranks have taken `batches` more batches, up to the end of the epoch.
    pub fn advance(&mut self, batches: u64) {
        let samples = batches.saturating_mul(u64::from(self.batch_global));
        self.position = self.position.saturating_add(samples).min(self.epoch_len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> OrderState {
        OrderState {
            block_bytes: 4 << 20,
            image_uuid: "a-uuid".into(),
            index_digest: "a-digest".into(),
            ..OrderState::new(&OrderChoices { seed: 5, batch_global: 10, lanes: 2, ..OrderChoices::default() }, 105)
        }
    }

    #[test]
    fn states_of_other_orders_are_refused_by_the_field_that_differs() {
        let expected = fresh();
        assert_eq!(expected.check(&expected), Ok(()));
        assert_eq!(OrderState { epoch: 7, position: 20, ..fresh() }.check(&expected), Ok(()));
        let cases = [
            (OrderState { algorithm: 2, ..fresh() }, "algorithm", "1", "2"),
            (OrderState { image_uuid: "b".into(), ..fresh() }, "image_uuid", "a-uuid", "b"),
            (OrderState { index_digest: "c".into(), ..fresh() }, "index_digest", "a-digest", "c"),
            (OrderState { n_samples: 106, ..fresh() }, "n_samples", "105", "106"),
            (OrderState { seed: 6, ..fresh() }, "seed", "5", "6"),
            (OrderState { shuffle: false, ..fresh() }, "shuffle", "true", "false"),
            (OrderState { drop_last: false, ..fresh() }, "drop_last", "true", "false"),
            (OrderState { batch_global: 20, ..fresh() }, "batch_global", "10", "20"),
            (OrderState { lanes: 1, ..fresh() }, "lanes", "2", "1"),
            (OrderState { block_bytes: 1, ..fresh() }, "block_bytes", "4194304", "1"),
            (OrderState { window_blocks: 64, ..fresh() }, "window_blocks", "256", "64"),
            (
                OrderState { position: 15, ..fresh() },
                "position",
                "a multiple of 10 (batch_global) and at most 100",
                "15",
            ),
            (
                OrderState { position: 110, ..fresh() },
                "position",
                "a multiple of 10 (batch_global) and at most 100",
                "110",
            ),
        ];
        for (saved, field, wanted, found) in cases {
            let error = saved.load(&expected).unwrap_err();
            assert_eq!((error.field, &*error.expected, &*error.found), (field, wanted, found));
            assert!(error.to_string().contains(field) && error.to_string().contains(found), "{error}");
        }
    }

    /// A checkpoint after the last batch neither skips nor repeats an epoch.
    #[test]
    fn the_end_of_an_epoch_loads_as_the_start_of_the_next() {
        let saved = OrderState { epoch: 3, position: 100, ..fresh() };
        let loaded = saved.load(&fresh()).unwrap();
        assert_eq!((loaded.epoch, loaded.position), (4, 0));
        let saved = OrderState { epoch: 3, position: 90, ..fresh() };
        assert_eq!(saved.load(&fresh()).unwrap(), saved);
        let padded = OrderState { drop_last: false, ..fresh() };
        assert_eq!(padded.epoch_len(), 110);
        assert_eq!(OrderState { position: 110, ..padded.clone() }.load(&padded).unwrap().epoch, 1);
        // Without batches, nothing was read to its end.
        let empty = OrderState { n_samples: 0, ..fresh() };
        assert_eq!(empty.load(&empty).unwrap().epoch, 0);
    }

    #[test]
    fn iterations_go_through_epochs_without_being_told() {
        let mut state = fresh();
        for epoch in 0..3 {
            state.begin();
            assert_eq!((state.epoch, state.step()), (epoch, 0));
            state.advance(4);
            // An iteration that was abandoned continues at the same position.
            state.begin();
            assert_eq!((state.epoch, state.step()), (epoch, 4));
            state.advance(u64::MAX);
        }
    }

    #[test]
    fn setting_the_epoch_keeps_the_position_of_the_same_epoch_only() {
        let mut state = OrderState { epoch: 2, position: 30, ..fresh() };
        state.set_epoch(2);
        assert_eq!((state.epoch, state.position), (2, 30));
        state.set_epoch(5);
        assert_eq!((state.epoch, state.position), (5, 0));
        state.advance(10);
        state.set_epoch(5);
        assert_eq!((state.epoch, state.position), (5, 0), "it was read to its end, and is asked for again");
    }

    /// The position is that of the epoch, not of the iteration: a second checkpoint after a resume
    /// is as good as the first.
    #[test]
    fn a_second_resume_goes_on_where_the_first_one_stopped() {
        let mut state = fresh();
        state.advance(3);
        let mut resumed = state.load(&fresh()).unwrap();
        resumed.advance(2);
        let resumed = resumed.load(&fresh()).unwrap();
        assert_eq!((resumed.epoch, resumed.step()), (0, 5));
    }
}
