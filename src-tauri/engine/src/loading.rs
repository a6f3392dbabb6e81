//! How a model comes into memory, within its limits, and how it goes again.

use std::path::Path;
use std::sync::Arc;

use kernels::cuda::{Device, Trial};
use kernels::{BLOCK_TOKENS, KvFormat, Team};
use models::{Footprint, LoadOptions, Model, ModelInfo};

use crate::cache::Cache;
use crate::device::{self, Chosen};
use crate::limits::{MemoryLimits, reserve_context, reserves_context};
use crate::machine::{self, Machine};
use crate::memory::{MemoryStats, Released};
use crate::offload::least_pool_bytes;
use crate::plan::{Circumstances, MemoryPlan, host_bytes, kv_sizes};
use crate::rates::Rates;
use crate::worker::Worker;
use crate::writer::lock;
use crate::{Error, Result, catalog};

impl Worker {
    /// Loads the model of this name unless it is loaded. If its file was replaced by other weights, the new file is
    /// loaded; the loaded model stays if the new file cannot be used.
    pub(crate) fn load(&mut self, name: &str) -> Result<()> {
        let path = catalog::resolve(&self.desk.history(), &self.models_folder, Some(name));
        let loaded = self.cache.as_ref().map(|cache| Arc::clone(cache.model()));
        let Some(model) = loaded.filter(|model| model.name() == name) else {
            return self.load_file(&path?);
        };
        // The model is loaded, so a missing file does not matter.
        let Ok(path) = path else { return Ok(()) };
        if path != model.info().path {
            // The name now belongs to another file.
            return self.load_file(&path);
        }
        // An unreadable file does not replace the loaded model.
        if !matches!(model.is_of(&path, &self.digests), Ok(false)) {
            return Ok(());
        }
        tracing::info!(path = %path.display(), "the model's file was replaced; it is loaded anew");
        drop(model);
        match self.load_file(&path) {
            Err(error) if self.cache.is_some() => {
                tracing::warn!(%error, "the model that is loaded stays");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Loads a model file on the devices that have room for it.
    fn load_file(&mut self, path: &Path) -> Result<()> {
        loop {
            let (chosen, plan) = self.choose(path)?;
            let is_on_device = chosen.device.is_some();
            match self.load_as(path, chosen, plan) {
                Err(error) if is_on_device && error.is_of_memory() => {
                    tracing::warn!(%error, "less of the GPU's memory is counted on");
                    self.devices.withheld += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Loads a model file as was chosen and planned.
    fn load_as(&mut self, path: &Path, chosen: Chosen, plan: MemoryPlan) -> Result<()> {
        let least = least_pool_bytes(&plan);
        if least > plan.pool_bytes {
            return Err(Error::MemoryFull {
                needed_bytes: least,
                free_bytes: plan.pool_bytes,
            });
        }
        let admitted = admit(plan.loaded_bytes(), plan.machine)?;
        // Where the GPU gets a part only, all that it has is counted on.
        if admitted == Admitted::Alone || chosen.num_layers.is_some() {
            self.unload();
        }
        let options = LoadOptions {
            kv: self.limits.kv.0,
            device: chosen.device,
            device_layers: chosen.num_layers,
            ..LoadOptions::default()
        };
        let team = Team::new(self.threads);
        let model = Arc::new(Model::load_with(path, team, &self.digests, options)?);
        if let Some(note) = model.kv_note() {
            tracing::info!(note, "keys and values have another format");
        }
        self.unload();
        self.open_cache(model, plan.pool_bytes)?;
        if let Some(cache) = &mut self.cache {
            cache.cpu_reason = chosen.reason;
            cache.device_layers = chosen.num_layers;
        }
        self.last_used_ms = self.desk.now_ms();
        Ok(())
    }

    /// What is to run a model file, and the plan for it: what there is room for, unless it is a GPU that computes such a model
    /// otherwise than the CPU does.
    fn choose(&mut self, path: &Path) -> Result<(Chosen, MemoryPlan)> {
        let (chosen, plan) = self.fit(path)?;
        let Some(device) = &chosen.device else {
            return Ok((chosen, plan));
        };
        // Before the model is there: a GPU that falls over has cost nothing yet, and what keys are balanced by is measured by
        // kernels that are known to be right.
        let trials = models::trials(path, self.limits.kv.0)?;
        let info = device.info();
        let threads = self.threads;
        let run = |trial: &Trial| trial.run(device, &Team::new(threads));
        let mut tried = self.devices.try_out(info, &trials, run);
        if tried.is_err() && self.cache.is_some() {
            // The model that is there has the memory.
            self.unload();
            tried = self.devices.try_out(info, &trials, run);
        }
        let without = match tried {
            Ok(None) => return Ok((chosen, plan)),
            Ok(Some(reason)) => device::said(Err(reason)),
            Err(error) => Chosen {
                reason: Some(format!("{} cannot be tried out: {error}", info.name)),
                ..Chosen::default()
            },
        };
        Ok((without, self.plan(path, None)?))
    }

    /// What there is room for: the chosen GPU; where the model does not fit into its memory, the GPU for its first layers, as many
    /// as fit; the CPU where there is no GPU, or not even room for one layer.
    fn fit(&mut self, path: &Path) -> Result<(Chosen, MemoryPlan)> {
        let mut chosen = self.devices.get(self.limits.device, self.threads);
        let Some(device) = &chosen.device else {
            return Ok((chosen, self.plan(path, None)?));
        };
        let plan = self.plan(path, Some(device))?;
        let (Some(offload), Some(machine)) = (plan.offload, plan.machine) else {
            return Ok((chosen, plan));
        };
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        chosen.reason = Some(format!(
            "the model needs {} MiB and {} has {} MiB free; choose a smaller model, or close programs that use the GPU",
            mib(offload.needed_bytes),
            device.info().name,
            mib(machine.room_bytes())
        ));
        match offload.device_layers {
            0 => chosen.device = None,
            layers => chosen.num_layers = Some(layers as usize),
        }
        Ok((chosen, offload.plan(self.plan(path, None)?)))
    }

    /// An empty pool for a model, with what is known of how fast this machine restores its blocks.
    pub(crate) fn open_cache(&mut self, model: Arc<Model>, pool_bytes: u64) -> Result<()> {
        let mut cache = Cache::open(model, pool_bytes, Arc::clone(&self.store))?;
        if cache.model().device().is_some() {
            cache.keep_evicted(host_bytes(self.limits.host_bytes, Machine::now()))?;
            cache.reserve_first()?;
        }
        let is_static = reserves_context(&self.desk.history(), cache.model().name())?;
        if is_static {
            cache.reserve_context()?;
        }
        let setting = Rates::setting(&cache.fingerprint);
        if let Some(known) = self.desk.history().setting(&setting)? {
            // Of another version, or not ours: they are measured again.
            cache.rates = serde_json::from_value(known).unwrap_or_default();
        }
        self.cache = Some(cache);
        self.pin_open();
        Ok(())
    }

    /// Saves everything, then drops pool and weights.
    pub(crate) fn unload(&mut self) {
        self.discard_draft();
        let Some(mut cache) = self.cache.take() else {
            return;
        };
        cache.save_all();
        let setting = Rates::setting(&cache.fingerprint);
        let kept = match serde_json::to_value(cache.rates) {
            Ok(rates) => self.desk.history().set_setting(&setting, &rates),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = kept {
            tracing::warn!(%error, "how fast this machine restores is not kept; it is measured again");
        }
    }

    /// As `unload`, and says what that gave.
    pub(crate) fn release(&mut self) -> Released {
        if self.cache.is_none() {
            return Released::default();
        }
        let before = machine::resident_bytes();
        let stats = MemoryStats::of(self.cache.as_ref(), &self.store);
        self.unload();
        self.devices.close();
        machine::give_back_freed();
        let pools = stats.pool.reserved_bytes + stats.host.reserved_bytes;
        let counted = stats.weights_bytes + stats.scratch_bytes + pools;
        // What a process holds does not tell of what it holds on a GPU.
        let measured = before.zip(machine::resident_bytes());
        let measured = measured.filter(|_| stats.device.name.is_none());
        Released {
            freed_bytes: measured.map_or(counted, |(before, after)| before.saturating_sub(after)),
            was_loaded: true,
        }
    }

    /// Takes new limits; a pool of another size or format comes with the next load.
    pub(crate) fn limit(&mut self, limits: MemoryLimits) {
        let of_load = |it: &MemoryLimits| (it.pool_bytes, it.host_bytes, it.kv, it.device);
        if of_load(&self.limits) != of_load(&limits) {
            self.unload();
        }
        if self.limits.device != limits.device {
            self.devices.close();
        }
        if limits.disk_bytes != self.limits.disk_bytes {
            if let Some(cache) = &mut self.cache {
                cache.flush();
            }
            lock(&self.store).set_budget(limits.disk_budget());
            self.refresh();
        }
        self.limits = limits;
    }

    /// Decides whether a model's pool takes a whole context at once. The one that is loaded comes again as decided; where that
    /// does not fit, nothing is decided.
    pub(crate) fn reserve(&mut self, model: &str, whole_context: bool) -> Result<()> {
        let before = reserves_context(&self.desk.history(), model)?;
        reserve_context(&mut self.desk.history(), model, whole_context)?;
        let loaded = self.cache.as_ref().map(|cache| cache.model().name());
        if before == whole_context || loaded != Some(model) {
            return Ok(());
        }
        self.unload();
        let outcome = self.load(model);
        if outcome.is_err() {
            reserve_context(&mut self.desk.history(), model, before)?;
        }
        outcome
    }

    /// When the model has been idle for as long as was agreed, in Unix milliseconds.
    pub(crate) fn idle_at_ms(&self) -> Option<i64> {
        self.cache.as_ref()?;
        Some(self.last_used_ms + self.limits.idle_ms()?)
    }

    pub(crate) fn loaded(&self) -> Option<ModelInfo> {
        self.cache
            .as_ref()
            .map(|cache| cache.model().info().clone())
    }

    /// After a turn for which a GPU's memory was not enough: the model goes, and with the next turn comes as the plan says then. Other
    /// programs may have taken what it counted on.
    pub(crate) fn leave_full_device(&mut self, error: &Error) {
        let is_on_device = |cache: &Cache| cache.model().device().is_some();
        if error.is_of_memory() && self.cache.as_ref().is_some_and(is_on_device) {
            tracing::warn!(%error, "the model is loaded anew for the next turn");
            self.unload();
            self.devices.withheld += 1;
        }
    }

    fn plan(&self, path: &Path, device: Option<&Arc<Device>>) -> Result<MemoryPlan> {
        // A model is called as its file.
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        // What the loaded model has there would be given back for another.
        let held = self.cache.as_ref().map_or(0, Cache::device_bytes);
        let around = Circumstances {
            machine: match device {
                Some(device) => Machine::of_device(device, held)
                    .map(|machine| machine.without(self.devices.withheld)),
                None => Machine::now(),
            },
            is_on_device: device.is_some(),
            threads: self.threads as u64,
            host: device.and_then(|_| Machine::now()),
            host_bytes: self.limits.host_bytes,
            pool_bytes: self.limits.pool_bytes,
            reserves_context: reserves_context(&self.desk.history(), &name)?,
            ..Circumstances::default()
        };
        plan_of(path, None, self.limits.kv.0, &around)
    }
}

/// How a model may come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// While the one before it is still there, in case that it cannot be read.
    Beside,
    /// When the one before it has gone: there is no room for both.
    Alone,
}

/// Whether there is room for `needed_bytes`; a machine that does not say has it.
pub(crate) fn admit(needed_bytes: u64, machine: Option<Machine>) -> Result<Admitted> {
    match machine {
        Some(machine) if needed_bytes > machine.room_bytes() => Err(Error::MemoryFull {
            needed_bytes,
            free_bytes: machine.room_bytes(),
        }),
        Some(machine) if needed_bytes > machine.available_bytes => Ok(Admitted::Alone),
        _ => Ok(Admitted::Beside),
    }
}

/// The plan for a model file, from its header, with keys and values in `kv` where the model can have that.
///
/// # Errors
/// When the file cannot be used.
pub fn plan_of(
    path: &Path,
    context_tokens: Option<u64>,
    kv: KvFormat,
    around: &Circumstances,
) -> Result<MemoryPlan> {
    let info = models::inspect(path)?;
    let footprint = Footprint::read(path)?;
    let formats = kv_sizes(&footprint, kv);
    Ok(MemoryPlan::new(
        &info,
        &footprint,
        context_tokens,
        &formats,
        around,
    ))
}

/// The error for a prompt of `needed` tokens, a lower bound if `at_least`: the model's context is full, or the pool is
/// too small.
pub(crate) fn too_long(cache: &Cache, needed: usize, at_least: bool) -> Error {
    let layout = cache.pool.kv().layout();
    let context = cache.model().config().context_length;
    if needed > context {
        return Error::ContextFull {
            needed,
            at_least,
            limit: context.min(cache.context_tokens()),
        };
    }
    // A block beside the context, to copy a partly matching one from.
    let num_blocks = needed.div_ceil(BLOCK_TOKENS) + 1;
    Error::MemoryFull {
        needed_bytes: (num_blocks * layout.slot_bytes()) as u64,
        free_bytes: (cache.pool.num_slots() * layout.slot_bytes()) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::{Admitted, admit};
    use crate::Error;
    use crate::machine::Machine;

    #[test]
    fn a_model_comes_beside_the_old_one_or_instead_of_it_or_is_refused_with_the_numbers() {
        let machine = Some(Machine {
            total_bytes: 1000,
            available_bytes: 300,
            process_bytes: 200,
        });
        assert_eq!(admit(300, machine).unwrap(), Admitted::Beside);
        assert_eq!(admit(301, machine).unwrap(), Admitted::Alone);
        assert_eq!(admit(500, machine).unwrap(), Admitted::Alone);
        assert_eq!(admit(u64::MAX, None).unwrap(), Admitted::Beside);
        match admit(501, machine) {
            Err(Error::MemoryFull {
                needed_bytes: 501,
                free_bytes: 500,
            }) => {}
            other => panic!("{other:?}"),
        }
    }
}
