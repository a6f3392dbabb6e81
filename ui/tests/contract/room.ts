import type { Backend } from '../../src/backend/backend';
import type { ContextChoice } from '../../src/backend/types';
import { begin, check, message, messages, refusedTurns, same, say, Turn, type ContextFull, type Scenario } from './harness';

/** Longer than the context of either model. */
const TOO_LONG = 'bread or tea or '.repeat(2600);

/** A conversation with one message that is too long, and the event that reported it. */
async function tooLong(backend: Backend): Promise<{ id: string; full: ContextFull; turn: Turn }> {
  const { id } = await begin(backend);
  const turn = new Turn((onEvent) => backend.sendMessage(id, null, TOO_LONG, onEvent));
  return { id, full: await fullOf(turn), turn };
}

async function fullOf(turn: Turn): Promise<ContextFull> {
  const last = await turn.end();
  if (last.event !== 'context_full') throw new Error(`the turn ended with ${JSON.stringify(last)}`);
  return last;
}

/** Drops `larger_context`, which depends on the memory of the machine. */
function elsewhere(choices: readonly ContextChoice[]): ContextChoice[] {
  return choices.filter((choice) => choice !== 'larger_context');
}

export const room: Scenario[] = [
  {
    name: 'a message that is too long alone is kept, and no advice is given that cannot help',
    start: 'ready',
    async run(backend) {
      const { id, full, turn } = await tooLong(backend);
      const [user, ...others] = await messages(backend, id);
      same([user.text.length, others.length], [TOO_LONG.length, 0], 'what is stored');
      same(turn.events.map((event) => event.event), ['started', 'context_full'], 'the events');
      same([full.message, elsewhere(full.choices)], [user.id, ['edit_earlier', 'new_conversation', 'stop']], 'what can be done');
      same([full.too_long, full.at_least], ['message', true], 'what is too long, and that nobody counted it to its end');
      const use = await backend.contextUse(id);
      same([use.at_least, elsewhere(use.choices)], [true, ['edit_earlier', 'new_conversation', 'stop']], 'what can be done later');
      check(full.needed_tokens > full.limit_tokens, JSON.stringify(full));
    },
  },
  {
    name: 'the same words sent again after a refusal are stored once',
    start: 'ready',
    async run(backend) {
      const { id, full } = await tooLong(backend);
      const again = await fullOf(new Turn((onEvent) => backend.sendMessage(id, full.message, TOO_LONG, onEvent)));
      same([again.message, (await messages(backend, id)).length], [full.message, 1], 'the message');
    },
  },
  {
    name: 'a branch of two turns that does not fit goes on without its oldest, and stays',
    start: 'ready',
    async run(backend) {
      const { id } = await tooLong(backend);
      const full = await fullOf(new Turn((onEvent) => backend.sendMessage(id, null, 'Say one word.', onEvent)));
      // A turn that does not fit cannot be summarised either.
      same(elsewhere(full.choices), ['drop_oldest', 'stop'], 'what can be done');
      const turn = new Turn((onEvent) => backend.shorten(id, 'drop_oldest', onEvent));
      const last = await turn.finished();
      const kinds = turn.events.map((event) => event.event).filter((event, at, all) => event !== all[at - 1]);
      same(kinds, ['shortening', 'shortened', 'started', 'prefill', 'token', 'finished'], 'the events');
      const [, question, copy, reply] = await messages(backend, id);
      same([copy.parent, copy.edited_from, copy.text], [null, question.id, 'Say one word.'], 'the shorter branch');
      same([reply.id, reply.parent], [last.message, copy.id], 'its reply');
      same((await backend.getConversation(id)).conversation.active_leaf, last.message, 'the branch that is shown');
      const hits = (await backend.search('say one word')).filter((hit) => hit.conversation === id);
      same(hits.map((hit) => hit.message), [question.id], 'a copy is not found beside its original');
    },
  },
  {
    name: 'what a conversation does when it is full is done without asking',
    start: 'ready',
    async run(backend) {
      const { id } = await tooLong(backend);
      await backend.setWhenFull(id, 'stop');
      const full = await fullOf(new Turn((onEvent) => backend.sendMessage(id, null, 'Say one word.', onEvent)));
      same(full.choices, [], 'nothing is offered');
      await backend.setWhenFull(id, 'drop_oldest');
      const turn = new Turn((onEvent) => backend.sendMessage(id, null, 'Say another word.', onEvent));
      const last = await turn.finished();
      check(turn.events.some((event) => event.event === 'shortened'), 'it goes on in a shorter branch');
      check((await message(backend, id, last.message)).state !== 'failed', 'its reply stands');
    },
  },
  {
    name: 'the only turn of a branch cannot be dropped, and can be summarised when nothing waits in it',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const reply = await say(backend, id, 'Say one word.');
      await refusedTurns('invalid_argument', { 'dropping it': (onEvent) => backend.shorten(id, 'drop_oldest', onEvent) });
      const waiting = await tooLong(backend);
      await refusedTurns('invalid_argument', { 'dropping what waits': (onEvent) => backend.shorten(waiting.id, 'drop_oldest', onEvent) });
      const turn = new Turn((onEvent) => backend.shorten(id, 'compact', onEvent));
      const last = await turn.finished();
      const summary = await message(backend, id, last.message);
      same([summary.kind, summary.parent, summary.role], ['summary', null, 'user'], 'what is stored');
      same((await messages(backend, id)).slice(0, 2).map((one) => one.id)[1], reply.message, 'the full branch');
      same([last.prompt_tokens, last.completion_tokens], [0, 0], 'no reply was written');
    },
  },
  {
    name: 'how full the context is grows with what is said and with the system prompt',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      same((await backend.contextUse(id)).used, 0, 'before anything is said');
      const last = await say(backend, id, 'Say one word.');
      const said = await backend.contextUse(id);
      check(said.used >= last.prompt_tokens && said.used < said.limit, JSON.stringify(said));
      await backend.setSystemPrompt(id, 'Be kind, be brief, be honest, and say when you do not know.');
      check((await backend.contextUse(id)).used > said.used, 'the system prompt is not counted');
      const cost = await backend.previewEdit(id, null, 'And?');
      check(cost.keeps < said.used && cost.of > said.used, `a new system prompt is read from its beginning: ${JSON.stringify(cost)}`);
    },
  },
  {
    name: 'what will be read is told before it is sent, and whether it fits',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      const fitting = await backend.previewEdit(id, null, 'Say one word.');
      check(!fitting.at_least && fitting.of < fitting.limit && fitting.keeps < fitting.of, JSON.stringify(fitting));
      const long = await backend.previewEdit(id, null, TOO_LONG);
      check(long.at_least && long.of > long.limit, JSON.stringify(long));
      const beginning = await backend.previewBeginning('Be kind.', 'Say one word.');
      check(!beginning.at_least && beginning.limit === fitting.limit, JSON.stringify(beginning));
      // Compared with another system prompt and not with none: a chat template may have a default one.
      const longer = await backend.previewBeginning('Be kind. '.repeat(9), 'Say one word.');
      check(longer.of > beginning.of, `${JSON.stringify(longer)} after ${JSON.stringify(beginning)}`);
      check((await backend.previewBeginning('', TOO_LONG)).at_least, 'a beginning that does not fit');
      await say(backend, id, 'Say one word.');
      const said = await backend.contextUse(id);
      const other = await backend.previewSystemPrompt(id, 'Be kind, be brief, be honest.');
      check(other.of > said.used - 2 && other.keeps < other.of, `all of it is read again: ${JSON.stringify(other)}`);
      same((await backend.getConversation(id)).conversation.system_prompt, '', 'and nothing has changed');
    },
  },
  {
    name: 'a system prompt that is too long is said to be what is too long',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      await backend.setSystemPrompt(id, TOO_LONG);
      const full = await fullOf(new Turn((onEvent) => backend.sendMessage(id, null, 'Say one word.', onEvent)));
      same([full.too_long, elsewhere(full.choices)], ['system_prompt', ['edit_system_prompt', 'stop']], 'what can be done');
    },
  },
];
