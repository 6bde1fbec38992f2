-- A part of other scripts: change(key, at) sets some fields of a record and keeps its TTL.
-- It takes from ARGV[at] on: 'hash' or 'value'; the layout that the record must have (the field `_v` of a hash, the
-- head of a JSON envelope); then name, value, ... as they are stored (in JSON: the quoted name, the raw value).
-- It returns false, and has changed nothing, when the key holds no record of that layout.

-- The position of the quote that ends the JSON string which begins at `at`.
local function string_end(text, at)
  at = text:find('["\\]', at + 1)
  while text:byte(at) == 92 do -- a backslash: skip the character after it
    at = text:find('["\\]', at + 2)
  end
  return at
end

-- The position of the last character of the JSON value which begins at `at`, inside an object.
local function value_end(text, at)
  local depth = 0
  while true do
    at = text:find('["%[%]{},]', at)
    local mark = text:sub(at, at)
    if mark == '"' then
      at = string_end(text, at)
    elseif mark == '[' or mark == '{' then
      depth = depth + 1
    elseif depth == 0 then
      return at - 1
    elseif mark ~= ',' then
      depth = depth - 1
    end
    at = at + 1
  end
end

-- The JSON object with the members that ARGV gives from `from` on; all others keep their text.
local function spliced(object, from)
  local names, values, at = {}, {}, 2
  while object:sub(at, at) == '"' do
    local quote = string_end(object, at)
    local last = value_end(object, quote + 2)
    local name = object:sub(at, quote)
    names[#names + 1] = name
    values[name] = object:sub(quote + 2, last)
    at = last + 2
  end
  for i = from, #ARGV, 2 do
    if not values[ARGV[i]] then names[#names + 1] = ARGV[i] end
    values[ARGV[i]] = ARGV[i + 1]
  end
  for i, name in ipairs(names) do names[i] = name .. ':' .. values[name] end
  return '{' .. table.concat(names, ',') .. '}'
end

local function change(key, at)
  local layout = ARGV[at + 1]
  if ARGV[at] == 'hash' then
    if redis.call('HGET', key, '_v') ~= layout then return false end
    redis.call('HSET', key, unpack(ARGV, at + 2))
    return true
  end
  local text = redis.call('GET', key)
  if not text or text:sub(1, #layout + 1) ~= layout .. '{' then return false end
  local whole, object = pcall(spliced, text:sub(#layout + 1, -2), at + 2)
  if not whole then return false end -- truncated, or not JSON: it reads as a miss, too
  redis.call('SET', key, layout .. object .. ']', 'KEEPTTL')
  return true
end
