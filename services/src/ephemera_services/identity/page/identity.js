"use strict";
// The page of identity: sign-in, registration, reset, and one's own account.
//
// The access token is only in memory. The refresh token is in localStorage, because it works once: all tabs
// share it and take turns (navigator.locks), so that no tab uses one that another has used. Codes from mails
// come in the fragment of a link, which is removed from the address bar at once.

const VIEWS = ["sign-in", "register", "forgotten", "reset", "confirm", "account"];
const STORED = "identity:refresh";
const EVENTS = {
  registered: "Account created", signed_in: "Signed in", sign_in_refused: "Sign-in refused", signed_out: "Signed out",
  session_ended: "Sign-in ended", all_sessions_ended: "All sign-ins ended", password_changed: "Password changed",
  refresh_token_reused: "Stolen token: sign-in ended", password_reset: "Password reset", email_confirmed: "Address confirmed",
  email_change_requested: "Change of address requested", email_changed: "Address changed", role_changed: "Role changed",
  blocked: "Blocked", unblocked: "Unblocked", exported: "Data downloaded",
};
const state = { access: null, user: null, next: null };
const $ = (id) => document.getElementById(id);

// --- requests ---------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, body) {
    const errors = (body.errors ?? []).map((each) => each.problem).join(" ");
    super(errors || body.detail || "That did not work. Please try again.");
    this.status = status;
  }
}

async function send(method, path, body, token) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  if (body) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Refused(0, { detail: "There is no connection. Please try again." });
  }
  if (response.ok) return response;
  throw new Refused(response.status, await response.json().catch(() => ({})));
}

const post = (path, body) => send("POST", path, body);

function exclusively(work) { // one tab at a time
  return navigator.locks ? navigator.locks.request("identity-refresh", work) : work();
}

function keep(tokens) {
  state.access = tokens?.access_token ?? null;
  if (tokens) localStorage.setItem(STORED, tokens.refresh_token);
  else localStorage.removeItem(STORED);
}

function refresh() {
  return exclusively(async () => {
    const token = localStorage.getItem(STORED);
    if (!token) throw new Refused(401, { detail: "Please sign in." });
    try {
      keep(await (await post("auth/refresh", { refresh_token: token })).json());
    } catch (refused) {
      if (refused.status === 401 || refused.status === 403) keep(null);
      throw refused;
    }
  });
}

async function authorized(method, path, body) {
  if (!state.access) await refresh();
  try {
    return await send(method, path, body, state.access);
  } catch (refused) {
    if (refused.status !== 401) throw refused;
    await refresh(); // it has expired, or was revoked
    return send(method, path, body, state.access);
  }
}

// --- what the forms do ------------------------------------------------------------------------------------

const ACTIONS = {
  async signIn(form) {
    keep(await (await post("auth/login", form)).json());
    go("account");
  },
  async register(form) {
    await post("auth/register", form);
    go("sign-in", "Check your mail: we sent a message to confirm your address.");
  },
  async forgotten(form) {
    await post("auth/password/forgotten", form);
    go("reset", "If this address has an account, a code is on its way.");
  },
  async reset(form) {
    await post("auth/password/reset", form);
    keep(null);
    go("sign-in", "Your password is set. Sign in with it.");
  },
  async confirm(form) {
    await post("auth/email/confirm", form);
    go(localStorage.getItem(STORED) ? "account" : "sign-in", "Your address is confirmed.");
  },
  async changeProfile(form) {
    await authorized("PATCH", `api/profiles/${state.user}`, form);
    go("account", "Your profile is saved.");
  },
  async changePassword(form) {
    const { ended } = await (await authorized("POST", "auth/password", form)).json();
    go("account", `Your password is changed, and ${ended} other sign-in${ended === 1 ? "" : "s"} ended.`);
  },
  async changeEmail(form) {
    await authorized("PUT", "auth/email", form);
    go("confirm", `Enter the code that we sent to ${form.email}.`);
  },
  async deleteAccount(form) {
    await authorized("POST", "auth/account/delete", form);
    keep(null);
    go("sign-in", "Your account is deleted.");
  },
};

async function submit(event) {
  event.preventDefault();
  const form = event.target, error = form.querySelector(".error"), button = form.querySelector("button");
  error.textContent = "";
  button.disabled = true;
  try {
    await ACTIONS[form.dataset.action](Object.fromEntries(new FormData(form)));
    form.reset();
  } catch (refused) {
    error.textContent = refused.message;
    (form.querySelector("input[type=password]") ?? form.querySelector("input")).focus();
  } finally {
    button.disabled = false;
  }
}

// --- the account ------------------------------------------------------------------------------------------

function row(title, detail, ...more) {
  const item = document.createElement("li"), text = document.createElement("div");
  const strong = document.createElement("strong"), small = document.createElement("small");
  strong.append(...[title].flat().flatMap((each) => [each, " "]));
  small.textContent = detail;
  text.append(strong, small);
  item.append(text, ...more);
  return item;
}

function tag(text, kind = "") {
  const span = document.createElement("span");
  span.className = `tag ${kind}`;
  span.textContent = text;
  return span;
}

const when = (text) => new Date(text).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

function browserOf(agent) {
  const browser = /(Edg|OPR|Firefox|Chrome|Safari)(?=\/)/.exec(agent)?.[1] ?? (agent.split("/")[0] || "Unknown program");
  const system = /(Android|iPhone|iPad|Windows|Mac OS X|Linux)/.exec(agent)?.[1];
  const names = { Edg: "Edge", OPR: "Opera", "Mac OS X": "macOS" };
  return [browser, system].filter(Boolean).map((each) => names[each] ?? each).join(" on ");
}

function drawSessions({ sessions }) {
  $("sessions").replaceChildren(...sessions.map((each) => {
    const title = [browserOf(each.user_agent)];
    if (each.current) return row([...title, tag("this one", "good")], `${each.ip_address}, since ${when(each.created_at)}`);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.textContent = "End";
    button.setAttribute("aria-label", `End the sign-in of ${title} since ${when(each.created_at)}`);
    button.addEventListener("click", () => endSession(each.sid));
    return row(title, `${each.ip_address}, last used ${when(each.refreshed_at)}`, button);
  }));
}

async function endSession(sid) {
  await reported(async () => {
    await authorized("DELETE", `auth/sessions/${sid}`);
    await drawAccount();
    notify("That sign-in has ended.");
  });
}

function drawLog({ events, next }) {
  state.next = next;
  $("older").hidden = next === null;
  $("log").append(...events.map((each) => {
    const title = [EVENTS[each.what] ?? each.what];
    if (each.by_admin) title.push(tag("by an administrator"));
    const from = [when(each.at), each.ip_address, each.user_agent && browserOf(each.user_agent)];
    return row(title, from.filter(Boolean).join(", "));
  }));
}

async function drawAccount() {
  const paths = ["auth/account", "auth/sessions", "auth/security-log"];
  if (!state.access) await refresh();
  const [account, sessions, log] = await Promise.all(paths.map(async (path) => (await authorized("GET", path)).json()));
  state.user = account.user_id;
  await drawProfile();
  $("greeting").textContent = `Hello, ${account.first_name}`;
  $("who").textContent = account.email;
  const verified = account.email_verified_at !== null;
  $("email-state").replaceChildren(account.email, " ", verified ? tag("confirmed", "good") : tag("not confirmed"));
  $("resend").hidden = verified;
  drawSessions(sessions);
  $("log").replaceChildren();
  drawLog(log);
}

async function drawProfile() { // reads are limited: without it the rest of the account is there
  const response = await authorized("GET", `api/profiles/${state.user}`).catch(() => null);
  const profile = await response?.json();
  $("profile").hidden = !profile;
  for (const input of profile ? $("profile").querySelectorAll("input") : []) input.defaultValue = input.value = profile[input.name];
}

async function older() {
  await reported(async () => drawLog(await (await authorized("GET", `auth/security-log?before=${state.next}`)).json()));
}

async function download() {
  await reported(async () => {
    const content = await (await authorized("GET", "auth/account/export")).blob();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content);
    link.download = "account.zip";
    link.click();
    URL.revokeObjectURL(link.href);
  });
}

async function resend() {
  await reported(async () => {
    await post("auth/email/verification", { email: $("who").textContent });
    go("confirm", "A new code is on its way.");
  });
}

async function signOut() {
  await authorized("POST", "auth/logout").catch(() => {}); // it may have ended already
  keep(null);
  go("sign-in", "You are signed out.");
}

// --- views ------------------------------------------------------------------------------------------------

function notify(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

async function reported(work) {
  try {
    await work();
  } catch (refused) {
    if (refused.status === 401 || refused.status === 403) go("sign-in", refused.message);
    else notify(refused.message);
  }
}

function go(view, text = "") {
  if (location.hash !== `#${view}`) history.pushState(null, "", `#${view}`);
  return show(view, text);
}

async function show(view, text = "") {
  notify(text);
  if (view === "account" && !(await isAccountDrawn())) return;
  for (const each of VIEWS) $(each).hidden = each !== view;
  document.querySelector("header nav").hidden = view !== "account";
  const heading = $(view).querySelector("h1");
  document.title = `${heading.textContent} · Account`;
  heading.focus({ preventScroll: true });
  scrollTo(0, 0);
}

async function isAccountDrawn() {
  let drawn = false;
  await reported(async () => { await drawAccount(); drawn = true; });
  return drawn;
}

function open() { // what the address says: a view, or a code from a mail
  const [, name, code] = /^#(\w[\w-]*)(?:=([\w-]+))?$/.exec(location.hash) ?? [null, ""];
  if (code) {
    const view = name === "reset" ? "reset" : "confirm";
    history.replaceState(null, "", `#${view}`);
    $(view).querySelector("[name=code]").value = code;
    return show(view);
  }
  if (VIEWS.includes(name) && name !== "sign-in") return show(name);
  return show(localStorage.getItem(STORED) ? "account" : "sign-in");
}

for (const form of document.forms) form.addEventListener("submit", submit);
$("sign-out").addEventListener("click", signOut);
$("resend").addEventListener("click", resend);
$("export").addEventListener("click", download);
$("older").addEventListener("click", older);
addEventListener("popstate", open); // also after a link to a fragment
open();
