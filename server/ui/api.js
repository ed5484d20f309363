// SPDX-License-Identifier: Apache-2.0
// Calls of /v1 and nothing else. A token stands in the session storage of this tab and goes as a bearer token; no
// cookie is ever set, so no other page can use it.

const TOKEN = "cairn-token";
const UNANSWERED = [502, 503, 504], AGAIN_MS = 500;
const BASE = new URL("..", document.baseURI); // behind a proxy the API lies beside the page

export class Problem extends Error {
  constructor(status, said) {
    super(said.detail || said.title || `the server answered ${status}`);
    Object.assign(this, {status, code: said.code, hint: said.hint, id: said.trace_id, retryable: said.retryable, said});
  }
}

let heardAt = performance.now();
export const heard = {since: () => (performance.now() - heardAt) / 1000};

export function setToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
}

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return {Accept: "application/json", "X-Cairn": "ui", ...(token ? {Authorization: `Bearer ${token}`} : {}), ...more};
}

async function send(method, path, {body, query, match, signal, accept, last} = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query || {}))
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  const response = await fetch(url, {
    method, signal, cache: "no-store", credentials: "omit", redirect: "error",
    headers: headers({
      ...(body !== undefined ? {"Content-Type": "application/json"} : {}),
      ...(match ? {"If-Match": match} : {}), ...(accept ? {Accept: accept} : {}), ...(last ? {"Last-Event-ID": String(last)} : {})}),
    body: body === undefined ? undefined : JSON.stringify(body)});
  heardAt = performance.now();
  if (response.ok) return response;
  let said = {};
  try { said = await response.json(); } catch { /* not from Cairn: something between */ }
  if (!said.code) said.detail = `something between this page and the server answered ${response.status}`;
  throw new Problem(response.status, said);
}

// What got no answer, since the network has just changed or the server is being started again, is asked once more.
export async function get(path, query, signal) {
  try {
    return await (await send("GET", path, {query, signal})).json();
  } catch (problem) {
    const passes = problem instanceof TypeError || (UNANSWERED.includes(problem.status) && (!problem.code || problem.retryable));
    if (signal?.aborted || !passes) throw problem;
  }
  await new Promise(resolve => setTimeout(resolve, AGAIN_MS));
  return (await send("GET", path, {query, signal})).json();
}

export async function change(method, path, body, {match, query} = {}) {
  const response = await send(method, path, {body: method === "DELETE" ? undefined : body ?? {}, match, query});
  const text = await response.text();
  return text ? JSON.parse(text) : {};
}

// Each page of a list as it comes. most: so many items at most.
export async function* pages(path, query, signal, most = Infinity) {
  let cursor = null, taken = 0;
  do {
    const page = await get(path, {limit: 1000, ...query, cursor}, signal);
    taken += page.items.length;
    yield page.items;
    cursor = page.next_cursor;
  } while (cursor && taken < most);
}

export async function all(path, query, signal, most) {
  const items = [];
  for await (const page of pages(path, query, signal, most)) items.push(...page);
  return items;
}

// Events as they happen, until the signal ends it; each is given to `take`. EventSource cannot send a token.
export async function follow(path, take, signal) {
  let last = null, pause = 1000;
  while (!signal.aborted) {
    try {
      const response = await send("GET", path, {signal, accept: "text/event-stream", last});
      pause = 1000;
      for await (const event of eventsOf(response.body)) {
        heardAt = performance.now();
        if (event) { last = event.id ?? last; take(event); }
      }
    } catch (problem) {
      if (signal.aborted) return;
      if (problem.code === "cursor-expired") last = null;
      if (problem.status === 401 || problem.status === 403 || problem.status === 404) return;
    }
    await new Promise(resolve => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, 30000);
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).split("\n").filter(line => line.startsWith("data:")).map(line => line.slice(5)).join("\n");
      yield data ? JSON.parse(data) : null; // null: a comment, the connection lives
    }
  }
}

// ---- paths ----

const part = encodeURIComponent;
export const run = (project, name) => `v1/runs/${part(project)}/${part(name)}`;
export const checkpoint = (project, name, ref) => `${run(project, name)}/checkpoints/${part(ref)}`;
export const address = path => new URL(path, BASE).href;
