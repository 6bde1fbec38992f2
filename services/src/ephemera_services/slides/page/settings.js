"use strict";
// Settings: one's password; the API keys of editors; the users of the organization and its brand kit for administrators.

const ROLES = { viewer: "Viewer", editor: "Editor", admin: "Administrator" };

const openSettings = guarded(async () => {
  document.title = "Settings · Slides";
  const isAdmin = session.me.role === "admin", has = (feature) => session.me.features.includes(feature);
  const [users, keys] = await Promise.all([isAdmin ? ask("GET", "admin/users") : null, ask("GET", "api-keys")]);
  const panels = [];
  if (users) panels.push(panel("Users", rows(users.users.map(userLine)), userForm()));
  if (has("api_access") && canEdit()) panels.push(panel("API keys", rows(keys.keys.map(keyLine), "You have no keys."), keyForm()));
  if (isAdmin && has("brand_kit")) panels.push(panel("Brand kit", brandForm()));
  panels.push(panel("Password", passwordForm()));
  if (session.me) $("settings").replaceChildren(...panels);
});

function panel(title, ...content) {
  const id = `settings-${title.toLowerCase().replace(" ", "-")}`;
  return el("section", { className: "card", "aria-labelledby": id }, el("h2", { id }, title), ...content);
}

function rows(lines, none = "") {
  return lines.length ? el("ul", { className: "rows" }, ...lines) : el("p", {}, none);
}

function choices(options, selected) {
  return el("select", {}, ...Object.entries(options).map(([value, text]) => el("option", { value, selected: value === selected }, text)));
}

function settingsForm(fields, action, save) {
  const labelled = Object.entries(fields).map(([name, [text, control]]) => el("label", {}, text, Object.assign(control, { name })));
  const error = el("p", { className: "error", role: "alert" });
  const form = el("form", {}, ...labelled, error, el("button", {}, action));
  form.addEventListener("submit", guarded(async () => save(Object.fromEntries(new FormData(form)), form), error));
  return form;
}

function action(text, label, work, kind = "quiet") {
  const button = el("button", { type: "button", className: kind, "aria-label": label }, text);
  button.addEventListener("click", guarded(work));
  return button;
}

// --- users ------------------------------------------------------------------------------------------------

function userLine(user) {
  const path = `admin/users/${user.user_id}`, mine = user.user_id === session.me.user_id;
  const name = el("span", {}, el("strong", {}, user.email), el("small", {}, mine ? "you" : user.blocked ? "blocked" : `since ${day(user.created_at)}`));
  if (mine) return el("li", {}, name, el("small", {}, ROLES[user.role]));
  const role = Object.assign(choices(ROLES, user.role), { ariaLabel: `Role of ${user.email}` });
  role.addEventListener("change", guarded(async () => {
    await ask("PUT", `${path}/role`, { role: role.value }).finally(openSettings);
    toast(`${user.email}: the new role applies at their next sign-in.`, "good");
  }));
  const block = action(user.blocked ? "Unblock" : "Block", `${user.blocked ? "Unblock" : "Block"} ${user.email}`, async () => {
    await ask("PUT", `${path}/blocked`, { blocked: !user.blocked });
    await openSettings();
  });
  const remove = action("Delete", `Delete ${user.email}`, async () => {
    if (!await confirmed(`Delete ${user.email}? Their presentations and documents become yours.`, "Delete")) return;
    await ask("DELETE", path);
    await openSettings();
  }, "quiet danger");
  return el("li", {}, name, el("div", { className: "line" }, role, block, remove));
}

function userForm() {
  return settingsForm({
    email: ["E-mail of the new user", el("input", { type: "email", maxLength: 254, required: true, autocomplete: "off" })],
    password: ["First password", el("input", { type: "password", minLength: 10, maxLength: 128, required: true, autocomplete: "new-password" })],
    role: ["Role", choices(ROLES, "editor")],
  }, "Add user", async (values) => {
    await ask("POST", "admin/users", values);
    toast(`${values.email} can sign in.`, "good");
    await openSettings();
  });
}

// --- the password -----------------------------------------------------------------------------------------

function passwordForm() {
  const field = (more) => el("input", { type: "password", maxLength: 128, required: true, ...more });
  return settingsForm({
    current_password: ["Current password", field({ autocomplete: "current-password" })],
    new_password: ["New password", field({ minLength: 10, autocomplete: "new-password" })],
  }, "Change password", async (values, form) => {
    const { sessions_ended: ended } = await ask("PUT", "auth/password", values);
    form.reset();
    toast(ended > 1 ? "Your password is changed, and you are signed out everywhere else." : "Your password is changed.", "good");
    session.sockets?.close(); // it was opened by the session that has ended; it opens again
  });
}

// --- API keys ---------------------------------------------------------------------------------------------

function keyLine(key) {
  const about = `created ${day(key.created_at)}, expires ${day(key.expires_at)}`;
  return el("li", {}, el("span", {}, el("strong", {}, key.name), el("small", {}, about)), action("Revoke", `Revoke ${key.name}`, async () => {
    if (!await confirmed(`Revoke “${key.name}”? Programs that use it are refused from now on.`, "Revoke")) return;
    await ask("DELETE", `api-keys/${key.api_key_id}`);
    await openSettings();
  }, "quiet danger"));
}

function keyForm() {
  return settingsForm({
    name: ["Name", el("input", { maxLength: 200, required: true, autocomplete: "off", placeholder: "What will use it?" })],
    days: ["Expires", choices({ 7: "In a week", 30: "In 30 days", 90: "In 90 days", 365: "In a year" }, "90")],
  }, "Create key", async ({ name, days }) => {
    const made = await ask("POST", "api-keys", { name, days: Number(days) });
    await openSettings();
    const field = el("input", { readOnly: true, value: made.key, ariaLabel: "New key" });
    $("settings-api-keys").after(el("p", { className: "fresh", role: "status" }, "Copy it now: it is not shown again.", field));
    field.select();
  });
}

// --- the brand kit ----------------------------------------------------------------------------------------

function brandForm() {
  const kit = session.brand ?? { primary: "1F3A5F", accent: "E4572E", heading_font: "Calibri", body_font: "Calibri" };
  const colour = (value) => el("input", { type: "color", value: `#${value.toLowerCase()}` });
  const font = (value) => el("input", { value, maxLength: 60, required: true, pattern: "[A-Za-z0-9 \\-]+" });
  const form = settingsForm({
    primary: ["Colour", colour(kit.primary)], accent: ["Accent", colour(kit.accent)],
    heading_font: ["Font of titles", font(kit.heading_font)], body_font: ["Font of text", font(kit.body_font)],
    logo: [kit.has_logo ? "Logo (it is kept only if you choose it again)" : "Logo", el("input", { type: "file", accept: "image/png,image/jpeg" })],
  }, "Save", async ({ primary, accent, logo, ...fonts }) => {
    const sent = { ...fonts, primary: primary.slice(1), accent: accent.slice(1), logo: logo.size ? await base64(logo) : null };
    session.brand = await ask("PUT", "brand-kit", sent);
    toast("Presentations have the new look from now on.", "good");
    await openSettings();
  });
  if (session.brand) form.append(action("Remove", "Remove the brand kit", async () => {
    await ask("DELETE", "brand-kit");
    session.brand = null;
    await openSettings();
  }));
  return form;
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Refused(0, { detail: "The file cannot be read." }));
    reader.readAsDataURL(file);
  });
}
