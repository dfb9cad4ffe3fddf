//! The module as the page sees it: `input(n)` makes room for n bytes of a question and says where; `answer()`
//! answers it, and says how many bytes the answer has; `output()` says where they are. After a trap,
//! `output()` and `said()` give the panic's message.
//!
//! The exported names are all that is unsafe here.
#![allow(unsafe_code)]

use std::cell::RefCell;

use crate::Playground;

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PLAYGROUND: RefCell<Option<Playground>> = const { RefCell::new(None) };
}

/// Room for a question.
#[unsafe(no_mangle)]
extern "C" fn input(length: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.resize(length, 0);
        input.as_mut_ptr()
    })
}

/// Answers it.
#[unsafe(no_mangle)]
extern "C" fn answer() -> usize {
    let question = INPUT.take();
    let answer = PLAYGROUND.with_borrow_mut(|playground| {
        let playground = playground.get_or_insert_with(|| {
            std::panic::set_hook(Box::new(|panic| OUTPUT.set(panic.to_string().into_bytes())));
            Playground::default()
        });
        playground.answer(&String::from_utf8_lossy(&question))
    });
    OUTPUT.set(answer.into_bytes());
    said()
}

/// Where the answer is.
#[unsafe(no_mangle)]
extern "C" fn output() -> *const u8 {
    OUTPUT.with_borrow(|output| output.as_ptr())
}

/// Its length.
#[unsafe(no_mangle)]
extern "C" fn said() -> usize {
    OUTPUT.with_borrow(Vec::len)
}
