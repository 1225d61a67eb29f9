//! A stateless plugin as an operator. A batch that fails is halved in place, with a fresh instance, until the single record is found.

use super::{FailureHandler, Operator, Outputs, Times};
use crate::Error;
use crate::plugin::{CallError, Failure, Instance, InstanceFactory};
use crate::record::Batch;
use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;

/// How often a record must fail alone before it is believed that a missed deadline or a lack of memory is its fault.
pub(super) const ALONE_BEFORE_BLAMED: u32 = 3;

/// One subtask of an operator whose plugin is a `map-plugin`.
pub struct MapOperator {
    factory: InstanceFactory,
    /// None after a failure, until the next call.
    instance: Option<Instance>,
    failures: FailureHandler,
}

impl std::fmt::Debug for MapOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapOperator").field("failures", &self.failures).finish_non_exhaustive()
    }
}

impl MapOperator {
    pub(crate) async fn open(factory: InstanceFactory, failures: FailureHandler) -> Result<Self, Error> {
        let instance = Some(factory.open().await?);
        Ok(Self { factory, instance, failures })
    }

    /// Processes records with the instance that lives, or a fresh one. The inner error is the plugin's: its instance is dead, nothing was emitted.
    async fn attempt(
        &mut self,
        batch: &mut Arc<Batch>,
        times: Times,
        outputs: &mut Outputs,
    ) -> Result<Result<Vec<Failure>, CallError>, Error> {
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => self.factory.open().await?,
        };
        match instance.map(batch, times, outputs).await {
            Ok(failures) => {
                self.instance = Some(instance);
                Ok(Ok(failures))
            }
            Err(CallError::Host(error)) => Err(error.within(format!("operator {}", self.failures.uid()))),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Finds the records that made a batch fail, and processes the others.
    async fn isolate(&mut self, batch: &Batch, error: CallError, times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        tracing::warn!(operator = self.failures.uid(), records = batch.len(), "a batch failed and is halved to find the record: {error}");
        let mut pending = vec![Part { rows: 0..batch.len(), failed: Some(error), alone: 0 }];
        while let Some(mut part) = pending.pop() {
            let error = match part.failed.take() {
                Some(error) => error,
                None => {
                    let mut rows = Arc::new(batch.slice(part.rows.clone()));
                    match self.attempt(&mut rows, times, outputs).await? {
                        Ok(failures) => {
                            self.handle(batch, part.rows.start, &failures, outputs)?;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            if part.rows.len() > 1 {
                // The first half is on top: records keep their order.
                let middle = part.rows.start + part.rows.len() / 2;
                pending.push(Part::new(middle..part.rows.end));
                pending.push(Part::new(part.rows.start..middle));
                continue;
            }
            part.alone += 1;
            if error.may_pass() && part.alone < ALONE_BEFORE_BLAMED {
                pending.push(part);
            } else {
                self.failures.handle(batch, part.rows.start, &error.to_string(), outputs)?;
            }
        }
        Ok(())
    }

    fn handle(&self, batch: &Batch, first: usize, failures: &[Failure], outputs: &mut Outputs) -> Result<(), Error> {
        failures.iter().try_for_each(|failure| self.failures.handle(batch, first + failure.row, &failure.reason, outputs))
    }
}

/// Rows of a batch that are still to be processed by themselves.
struct Part {
    rows: Range<usize>,
    /// The error, if these rows have just failed together.
    failed: Option<CallError>,
    /// How often the single row failed.
    alone: u32,
}

impl Part {
    fn new(rows: Range<usize>) -> Self {
        Self { rows, failed: None, alone: 0 }
    }
}

#[async_trait]
impl Operator for MapOperator {
    async fn process(&mut self, _input: usize, batch: Batch, times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut batch = Arc::new(batch);
        match self.attempt(&mut batch, times, outputs).await? {
            Ok(failures) => self.handle(&batch, 0, &failures, outputs),
            Err(error) => self.isolate(&batch, error, times, outputs).await,
        }
    }

    async fn finish(&mut self, times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => self.factory.open().await?,
        };
        instance.finish_map(times, outputs).await.map_err(|error| self.failures.call_error("finish", error))?;
        self.instance = Some(instance);
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Error> {
        match self.instance.take() {
            Some(mut instance) => instance.close().await.map_err(|error| self.failures.call_error("close", error)),
            None => Ok(()),
        }
    }
}
