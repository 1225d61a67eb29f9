//! The one place where bindings are generated from `wit/plugin.wit`: both worlds at once, so that they share their types.
//!
//! Parameters borrow: the columns of a batch are handed over as they are, and copied once, into the plugin's memory.

#![allow(missing_docs, unreachable_pub, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../wit",
    inline: "
        package waterwheel:served;
        world every {
            include waterwheel:plugin/map-plugin@0.1.0;
            include waterwheel:plugin/keyed-plugin@0.1.0;
        }
    ",
    world: "waterwheel:served/every",
    exports: { default: async },
    ownership: Borrowing { duplicate_if_necessary: true },
});

pub use self::waterwheel::plugin::{host, types};
pub use exports::waterwheel::plugin::{keyed_processor, lifecycle, mapper, snapshot};
