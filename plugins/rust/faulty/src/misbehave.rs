//! What a value asks for. The text is `verb` or `verb:argument`; any other value asks for nothing.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{SystemTime, UNIX_EPOCH};

use waterwheel_plugin::{Failure, fail, fail_batch, log};

/// Does what the text asks for. Gives the value to emit where there is something to tell, and nothing where the record is to be passed on.
///
/// # Errors
/// When the text asks for one: `fail`, `fail-batch`; and `file`, when it cannot be read.
#[allow(clippy::panic, reason = "what the plugin is for")]
pub(crate) fn misbehave(text: &str) -> Result<Option<String>, Failure> {
    let (verb, argument) = text.split_once(':').unwrap_or((text, ""));
    match verb {
        "panic" => panic!("{}", if argument.is_empty() { "asked to panic" } else { argument }),
        "exit" => std::process::exit(7),
        "loop" => loop {
            std::hint::spin_loop();
        },
        "allocate" => allocate(),
        "fail" => Err(fail(if argument.is_empty() { "asked to fail" } else { argument })),
        "fail-batch" => Err(fail_batch(if argument.is_empty() { "asked to fail the batch" } else { argument })),
        "print" => {
            println!("{argument}");
            Ok(None)
        }
        "print-error" => {
            eprintln!("{argument}");
            Ok(None)
        }
        "log" => {
            log::warn(argument);
            Ok(None)
        }
        "environment" => {
            let variables: Vec<String> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
            Ok(Some(format!("environment [{}]", variables.join(" "))))
        }
        "clock" => {
            let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
            Ok(Some(format!("clock {nanoseconds}")))
        }
        "random" => Ok(Some(format!("random {:016x}", RandomState::new().hash_one(0)))),
        "file" => {
            let content = std::fs::read_to_string(argument).map_err(|error| fail(format!("{argument}: {error}")))?;
            Ok(Some(format!("file {content}")))
        }
        _ => Ok(None),
    }
}

/// Takes memory until there is none.
fn allocate() -> ! {
    const PIECE_BYTES: usize = 1 << 20;
    let mut pieces = Vec::new();
    loop {
        // Not zeros: those may be had without memory.
        pieces.push(std::hint::black_box(vec![1_u8; PIECE_BYTES]));
    }
}
