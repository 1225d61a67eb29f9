//! How an author's type becomes the exports of a component. Only the two macros are meant to be used by hand.

use std::marker::PhantomData;

use crate::plugin::{KeyedPlugin, MapPlugin};
use crate::runtime::{KeyedRuntime, MapRuntime};

/// Exports a type that implements [`MapPlugin`] as the plugin that this crate is. Once a crate, which is a `cdylib`.
///
/// In native code, which is tests, it only checks the type.
#[macro_export]
macro_rules! export_map {
    ($plugin:ty) => {
        const _: () = {
            ::std::thread_local! {
                static INSTANCE: ::std::cell::RefCell<$crate::__private::MapRuntime<$plugin>> = ::std::cell::RefCell::default();
            }

            impl $crate::__private::MapExport for $plugin {
                fn with<R>(call: impl FnOnce(&mut $crate::__private::MapRuntime<$plugin>) -> R) -> R {
                    INSTANCE.with_borrow_mut(call)
                }
            }

            #[cfg(target_family = "wasm")]
            type Exported = $crate::__private::ExportedMap<$plugin>;
            #[cfg(target_family = "wasm")]
    $crate::__private::bindings::common::export_common!(Exported with_types_in $crate::__private::bindings::common);
            #[cfg(target_family = "wasm")]
    $crate::__private::bindings::map::export_map_part!(Exported with_types_in $crate::__private::bindings::map);
        };
    };
}

/// Exports a type that implements [`KeyedPlugin`] as the plugin that this crate is. Once a crate, which is a `cdylib`.
///
/// In native code, which is tests, it only checks the type.
#[macro_export]
macro_rules! export_keyed {
    ($plugin:ty) => {
        const _: () = {
            ::std::thread_local! {
                static INSTANCE: ::std::cell::RefCell<$crate::__private::KeyedRuntime<$plugin>> = ::std::cell::RefCell::default();
            }

            impl $crate::__private::KeyedExport for $plugin {
                fn with<R>(call: impl FnOnce(&mut $crate::__private::KeyedRuntime<$plugin>) -> R) -> R {
                    INSTANCE.with_borrow_mut(call)
                }
            }

            #[cfg(target_family = "wasm")]
            type Exported = $crate::__private::ExportedKeyed<$plugin>;
            #[cfg(target_family = "wasm")]
    $crate::__private::bindings::common::export_common!(Exported with_types_in $crate::__private::bindings::common);
            #[cfg(target_family = "wasm")]
    $crate::__private::bindings::keyed::export_keyed_part!(Exported with_types_in $crate::__private::bindings::keyed);
        };
    };
}

/// Where the one instance of a component is.
pub trait MapExport: MapPlugin {
    /// Calls with the instance.
    fn with<R>(call: impl FnOnce(&mut MapRuntime<Self>) -> R) -> R;
}

/// Where the one instance of a component is.
pub trait KeyedExport: KeyedPlugin {
    /// Calls with the instance.
    fn with<R>(call: impl FnOnce(&mut KeyedRuntime<Self>) -> R) -> R;
}

/// What the bindings export of a map plugin.
#[derive(Debug)]
pub struct ExportedMap<P>(PhantomData<P>);

/// What the bindings export of a keyed plugin.
#[derive(Debug)]
pub struct ExportedKeyed<P>(PhantomData<P>);

/// Has the message and the place of a panic told to the host, before the trap that follows.
fn report_panics() {
    #[cfg(target_family = "wasm")]
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("(a panic whose message is not text)");
        match panic.location() {
            Some(place) => crate::host::panicked(&format!("{message} (at {place})")),
            None => crate::host::panicked(message),
        }
    }));
}

mod map {
    use super::{ExportedMap, MapExport, MapRuntime, report_panics};
    use crate::bindings::common::exports::waterwheel::plugin::lifecycle;
    use crate::bindings::map::exports::waterwheel::plugin::mapper;
    use crate::bindings::{Batch, Context, Emitted};

    impl<P: MapExport> lifecycle::Guest for ExportedMap<P> {
        fn describe() -> String {
            report_panics();
            MapRuntime::<P>::describe()
        }

        fn open(config: String, environment: String) -> Result<(), String> {
            report_panics();
            P::with(|runtime| runtime.open(&config, &environment))
        }

        fn close() {
            P::with(MapRuntime::close);
        }
    }

    impl<P: MapExport> mapper::Guest for ExportedMap<P> {
        fn process(records: Batch, context: Context) -> Result<Emitted, String> {
            P::with(|runtime| runtime.process(records, &context))
        }

        fn finish(context: Context) -> Result<Emitted, String> {
            P::with(|runtime| runtime.finish(&context))
        }
    }
}

mod keyed {
    use super::{ExportedKeyed, KeyedExport, KeyedRuntime, report_panics};
    use crate::bindings::common::exports::waterwheel::plugin::lifecycle;
    use crate::bindings::keyed::exports::waterwheel::plugin::{keyed_processor, snapshot};
    use crate::bindings::{Batch, Column, Context, Entries, KeyedEmitted, Scope, Timers};

    impl<P: KeyedExport> lifecycle::Guest for ExportedKeyed<P> {
        fn describe() -> String {
            report_panics();
            KeyedRuntime::<P>::describe()
        }

        fn open(config: String, environment: String) -> Result<(), String> {
            report_panics();
            P::with(|runtime| runtime.open(&config, &environment))
        }

        fn close() {
            P::with(KeyedRuntime::close);
        }
    }

    impl<P: KeyedExport> keyed_processor::Guest for ExportedKeyed<P> {
        fn process(input: u32, records: Batch, context: Context) -> Result<KeyedEmitted, String> {
            P::with(|runtime| runtime.process(input, records, &context))
        }

        fn on_timers(fired: Timers, context: Context) -> Result<KeyedEmitted, String> {
            P::with(|runtime| runtime.on_timers(fired, &context))
        }

        fn finish(context: Context) -> Result<KeyedEmitted, String> {
            P::with(|runtime| runtime.finish(&context))
        }
    }

    impl<P: KeyedExport> snapshot::Guest for ExportedKeyed<P> {
        fn begin_export(scope: Scope) -> Result<(), String> {
            P::with(|runtime| runtime.begin_export(scope))
        }

        fn next_chunk(max_bytes: u32) -> Result<Option<Entries>, String> {
            P::with(|runtime| runtime.next_chunk(max_bytes))
        }

        fn import_state(entries: Entries) -> Result<(), String> {
            P::with(|runtime| runtime.import_state(&entries))
        }

        fn evict(keys: Column) -> Result<(), String> {
            P::with(|runtime| runtime.evict(&keys))
        }
    }
}
