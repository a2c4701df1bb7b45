//! Lists inside a document that are written item by item.

use super::{ErrorJson, json};
use crate::exit::Failure;
use kiln_read::ReadError;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use std::cell::{Ref, RefCell};

/// A list that is read while it is written, so that it may be longer than memory. It can be written once. If it
/// cannot be read to its end it is closed early, and its document contains the reason.
pub struct Streamed<I, F> {
    items: RefCell<I>,
    failure: F,
    error: RefCell<Option<Failure>>,
}

impl<I, F> Streamed<I, F> {
    /// Creates a list. `failure` converts an error of the items.
    pub fn new(items: I, failure: F) -> Self {
        Self { items: RefCell::new(items), failure, error: RefCell::default() }
    }

    /// Returns the source of the list, which may know more at its end.
    pub fn source(&self) -> Ref<'_, I> {
        self.items.borrow()
    }

    /// Returns the result of printing the document, or the reason why the list could not be read to its end.
    pub fn end(self, printed: Result<(), Failure>) -> Result<(), Failure> {
        self.error.into_inner().map_or(printed, Err)
    }
}

impl<T, I, F> Serialize for Streamed<I, F>
where
    T: Serialize,
    I: Iterator<Item = Result<T, ReadError>>,
    F: Fn(ReadError) -> Failure,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut items = self.items.borrow_mut();
        for item in items.by_ref() {
            match item {
                Ok(item) => list.serialize_element(&item)?,
                Err(error) => {
                    let failure = (self.failure)(error);
                    json::fail(ErrorJson::new(&failure, failure.code()));
                    self.error.replace(Some(failure));
                    break;
                }
            }
        }
        list.end()
    }
}
