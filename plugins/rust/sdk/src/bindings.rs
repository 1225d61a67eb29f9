//! The bindings generated from `wit/plugin.wit`; nothing else in this crate knows how the canonical ABI works.
//!
//! The worlds of the contract are put together from three parts, since the macros that export an interface can exist only once in
//! a crate: `map-plugin` is [`common`] and [`map`], `keyed-plugin` is [`common`] and [`keyed`].
#![allow(unsafe_code, missing_docs, missing_debug_implementations, unreachable_pub, reason = "generated code")]
#![allow(clippy::all, clippy::cast_possible_truncation, clippy::allow_attributes_without_reason, reason = "generated code")]

/// What both worlds have.
pub mod common {
    wit_bindgen::generate!({
        path: "../../../wit",
        inline: "
            package waterwheel:sdk;
            world common-part {
                import waterwheel:plugin/types@0.1.0;
                import waterwheel:plugin/host@0.1.0;
                export waterwheel:plugin/lifecycle@0.1.0;
            }
        ",
        generate_all,
        generate_unused_types: true,
        pub_export_macro: true,
        export_macro_name: "export_common",
        additional_derives: [Clone, PartialEq],
    });
}

/// What only map plugins have.
pub mod map {
    wit_bindgen::generate!({
        path: "../../../wit",
        inline: "
            package waterwheel:sdk;
            world map-part {
                export waterwheel:plugin/mapper@0.1.0;
            }
        ",
        with: {
            "waterwheel:plugin/types@0.1.0": super::common::waterwheel::plugin::types,
            "waterwheel:plugin/mapper@0.1.0": generate,
        },
        pub_export_macro: true,
        export_macro_name: "export_map_part",
    });
}

/// What only keyed plugins have.
pub mod keyed {
    wit_bindgen::generate!({
        path: "../../../wit",
        inline: "
            package waterwheel:sdk;
            world keyed-part {
                export waterwheel:plugin/keyed-processor@0.1.0;
                export waterwheel:plugin/snapshot@0.1.0;
            }
        ",
        with: {
            "waterwheel:plugin/types@0.1.0": super::common::waterwheel::plugin::types,
            "waterwheel:plugin/keyed-processor@0.1.0": generate,
            "waterwheel:plugin/snapshot@0.1.0": generate,
        },
        pub_export_macro: true,
        export_macro_name: "export_keyed_part",
        additional_derives: [Clone, PartialEq],
    });
}

pub use common::waterwheel::plugin::types::{Batch, Column, Context, Emitted, Failure, HeaderEdit, Timers};
pub use keyed::exports::waterwheel::plugin::keyed_processor::KeyedEmitted;
pub use keyed::exports::waterwheel::plugin::snapshot::{Entries, Scope};
