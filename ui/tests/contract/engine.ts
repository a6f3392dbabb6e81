import { begin, check, likeliest, message, refused, refusedTurns, same, say, Turn, type Scenario } from './harness';

export const engine: Scenario[] = [
  {
    name: 'a model that is chosen is loaded, and is the only one',
    start: 'ready',
    async run(backend) {
      const usable = (await backend.listModels()).filter((model) => model.usable);
      check(usable.length >= 2, `models: ${usable.map((model) => model.name)}`);
      for (const { name } of [usable[1], usable[0]]) {
        await backend.loadModel(name);
        const loaded = (await backend.listModels()).filter((model) => model.loaded).map((model) => model.name);
        same(loaded, [name], 'loaded');
        same([(await backend.appInfo()).model, (await backend.memoryStats()).model], [name, name], 'said elsewhere');
      }
    },
  },
  {
    name: 'a model that is not there, or no model at all, is refused',
    start: 'ready',
    async run(backend) {
      await refused('model_missing', {
        load: backend.loadModel('No such model'),
        plan: backend.planModel('No such model', null),
      });
      const before = await backend.listModels();
      const outcome = await backend.addModel('/no/such/file.gguf').then(() => null, (cause: unknown) => cause as { code?: string });
      check(['model_file_missing', 'model_broken'].includes(outcome?.code ?? ''), `a file that is not there: ${JSON.stringify(outcome)}`);
      same(await backend.listModels(), before, 'the models');
    },
  },
  {
    name: 'a reply says which model wrote it',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const last = await say(backend, id, 'Say one word.');
      const { model } = await message(backend, id, last.message);
      check((await backend.listModels()).some((one) => one.name === model), `it says ${model}`);
    },
  },
  {
    name: 'a conversation keeps the model that answers in it, until another is chosen for it',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const first = await say(backend, id, 'Say one word.');
      const bound = async () => (await backend.getConversation(id)).conversation.model;
      same(await bound(), first.model, 'whose it is');
      const other = (await backend.listModels()).find((model) => model.usable && model.name !== first.model);
      check(other !== undefined, 'there is one model only');
      if (!other) return;
      await refused('model_missing', { 'a model that is not there': backend.setConversationModel(id, 'No such model') });
      await refused('conversation_missing', { 'no conversation': backend.setConversationModel('nowhere', other.name) });
      same(await bound(), first.model, 'after refusals');
      await backend.setConversationModel(id, other.name);
      const second = await say(backend, id, 'And another.');
      same([second.model, await bound()], [other.name, other.name], 'the model that was chosen');
      same((await message(backend, id, first.message)).model, first.model, 'whose the first reply is');
      same((await backend.appInfo()).model, other.name, 'the model in memory');
    },
  },
  {
    name: 'a conversation whose model is not there goes on with another one, and says so once',
    start: 'ready',
    async run(backend) {
      const { id } = await backend.createConversation(null, 'No such model');
      await likeliest(backend, id, { max_tokens: 4 });
      const turn = new Turn((onEvent) => backend.sendMessage(id, null, 'Is anybody there?', onEvent));
      const last = await turn.finished();
      const told = turn.events.filter((event) => event.event === 'model_fallback');
      same(told.map(({ wanted, code, model }) => [wanted, code, model]), [['No such model', 'model_missing', last.model]], 'what is said');
      same((await backend.getConversation(id)).conversation.model, last.model, 'whose it is now');
      const next = new Turn((onEvent) => backend.sendMessage(id, null, 'And now?', onEvent));
      same((await next.finished()).model, last.model, 'who goes on');
      same(next.events.some((event) => event.event === 'model_fallback'), false, 'whether it is said again');
    },
  },
  {
    name: 'exactly one model is the default, and a file is never deleted unasked',
    start: 'ready',
    async run(backend) {
      const before = await backend.listModels();
      const [default_, ...others] = before.filter((model) => model.is_default);
      check(default_?.usable && others.length === 0, `defaults: ${[default_, ...others].map((model) => model?.name)}`);
      const own = before.filter((model) => !model.added);
      for (const { name } of own) await refused('invalid_argument', { [name]: backend.removeModel(name, false) });
      await refused('model_missing', { 'what is not there': backend.removeModel('No such model', true) });
      same((await backend.listModels()).map((model) => model.path), before.map((model) => model.path), 'the models');
    },
  },
  {
    name: 'what a model would take adds up, and more context takes more',
    start: 'ready',
    async run(backend) {
      const [model] = (await backend.listModels()).filter((one) => one.usable);
      const [less, more] = [await backend.planModel(model.name, 512), await backend.planModel(model.name, 1024)];
      same([less.model, less.context_tokens, more.context_tokens], [model.name, 512, 1024], 'what is planned');
      check(more.kv_bytes > less.kv_bytes && more.total_bytes >= less.total_bytes, `${less.kv_bytes} and ${more.kv_bytes}`);
      check(less.total_bytes >= less.weights_bytes + less.kv_bytes, 'the parts are more than all');
    },
  },
  {
    name: 'memory that was given back is taken again by the next turn, and nothing is read again',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const first = await say(backend, id, 'bread and tea '.repeat(60));
      same((await backend.releaseMemory()).was_loaded, true, 'whether it was loaded');
      same((await backend.releaseMemory()).was_loaded, false, 'whether it was loaded the second time');
      same([(await backend.memoryStats()).model, (await backend.appInfo()).model], [null, null], 'the model');
      same((await backend.listModels()).some((model) => model.loaded), false, 'loaded');
      const second = await say(backend, id, 'And then?');
      check(second.prefill.restored + second.prefill.resident >= first.prompt_tokens, JSON.stringify(second.prefill));
      check((await backend.memoryStats()).model !== null, 'it is loaded again');
    },
  },
  {
    name: 'limits of memory are kept, and those that make no sense are refused',
    start: 'ready',
    async run(backend) {
      const before = await backend.memoryLimits();
      await refused('invalid_argument', {
        'hardly any memory': backend.setMemoryLimits({ ...before, pool_bytes: 1 }),
        'hardly any disk': backend.setMemoryLimits({ ...before, disk_bytes: 1 }),
        'hardly any memory beside a GPU': backend.setMemoryLimits({ ...before, host_bytes: 1 }),
        'no minute at all': backend.setMemoryLimits({ ...before, idle_minutes: 0 }),
        'a format that is none': backend.setMemoryLimits({ ...before, kv: 'q3' }),
        'a device that is none': backend.setMemoryLimits({ ...before, device: 'gpu' }),
      });
      same(await backend.memoryLimits(), before, 'after refusals');
      await backend.setMemoryLimits({ ...before, disk_bytes: 2 ** 33, host_bytes: 0, idle_minutes: null });
      const { disk_bytes, host_bytes, idle_minutes } = await backend.memoryLimits();
      same([disk_bytes, host_bytes, idle_minutes], [2 ** 33, 0, null], 'what is kept');
      await backend.setMemoryLimits(before);
    },
  },
  {
    name: 'a cache that was cleared is empty, and the conversation is read again',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      await say(backend, id, 'bread and tea '.repeat(60));
      check((await backend.cacheStats()).num_blocks > 0, 'nothing was kept');
      await backend.clearCache();
      same((await backend.cacheStats()).num_blocks, 0, 'blocks');
      const next = await say(backend, id, 'And then?');
      same(next.prefill.restored + next.prefill.resident + next.prefill.computed, next.prompt_tokens, 'the counts together');
      same(next.prefill.restored, 0, 'restored');
    },
  },
  {
    name: 'the application says its version and where its things are',
    start: 'ready',
    async run(backend) {
      const { version, data_dir } = await backend.appInfo();
      check(/^\d+\.\d+\.\d+/.test(version), version);
      check(data_dir.length > 1, data_dir);
    },
  },
  {
    name: 'only addresses of the web are opened',
    start: 'ready',
    async run(backend) {
      await refused('invalid_argument', {
        'a file': backend.openLink('file:///etc/passwd'),
        'a script': backend.openLink('javascript:alert(1)'),
        nothing: backend.openLink(''),
      });
    },
  },
  {
    name: 'without a model the words are kept, and what needs one is refused',
    start: 'no_model',
    async run(backend) {
      same((await backend.listModels()).filter((model) => model.usable), [], 'models');
      const { id } = await backend.createConversation(null, null);
      const turn = new Turn((onEvent) => backend.sendMessage(id, null, 'Is anybody there?', onEvent));
      const last = await turn.end();
      same([last.event, 'code' in last && last.code], ['error', 'model_missing'], 'the end');
      const { conversation, messages } = await backend.getConversation(id);
      same([conversation.title, messages.map((one) => one.text)], ['Is anybody there?', ['Is anybody there?']], 'what is stored');
      await refused('model_missing', {
        'how full it is': backend.contextUse(id),
        'the cost of a message': backend.previewEdit(id, null, 'x'),
        loading: backend.loadModel('No such model'),
      });
      await refusedTurns('model_missing', { 'answering it': (onEvent) => backend.regenerate(id, messages[0].id, onEvent) });
    },
  },
];
