//! Lists inside of a document that are written as they are found.

use crate::exit::Failure;
use kiln_read::ReadError;
use serde::ser::{Error, SerializeSeq};
use serde::{Serialize, Serializer};
use std::cell::{Ref, RefCell};

/// A list that is read while it is written, so that it may be longer than memory. It can be written once.
pub struct Streamed<I> {
    items: RefCell<I>,
    error: RefCell<Option<ReadError>>,
}

impl<I> Streamed<I> {
    pub fn new(items: I) -> Self {
        Self { items: RefCell::new(items), error: RefCell::default() }
    }

    /// Where the list comes from: what it knows behind its end.
    pub fn source(&self) -> Ref<'_, I> {
        self.items.borrow()
    }

    /// How printing the document ended, or why the list could not be read to its end.
    pub fn end(self, printed: Result<(), Failure>, failure: impl FnOnce(ReadError) -> Failure) -> Result<(), Failure> {
        self.error.into_inner().map_or(printed, |error| Err(failure(error)))
    }
}

impl<T: Serialize, I: Iterator<Item = Result<T, ReadError>>> Serialize for Streamed<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut items = self.items.borrow_mut();
        for item in items.by_ref() {
            match item {
                Ok(item) => list.serialize_element(&item)?,
                Err(error) => {
                    self.error.replace(Some(error));
                    return Err(S::Error::custom("a list that cannot be read"));
                }
            }
        }
        list.end()
    }
}
