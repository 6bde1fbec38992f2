-- Stores one or several stamped entries whose loads are still valid, all of them or none, and numbers their versions.
-- KEYS     for each entry: the entry, the token of its load
-- ARGV     for each entry: the caller's token, '' stores unconditionally and ends any load;
--          the entry, '' if there is none; its TTL in milliseconds; the channel that wakes waiting callers;
--          the offset of its version in the entry, 16 digits for the number and then the stamp; -1 when it has none
-- RETURNS  the number of each entry, '' for one without; nil when a load was ended or taken over in the meantime, and
--          nothing was written
local time = redis.call('TIME')
local number = time[1] * 1000000 + time[2]
local entries = #KEYS / 2
local kept = {}
local valid = true
for i = 1, entries do
  local token, entry, at = ARGV[i * 5 - 4], ARGV[i * 5 - 3], tonumber(ARGV[i * 5])
  if token ~= '' and redis.call('GET', KEYS[i * 2]) ~= token then valid = false end
  if entry ~= '' and at >= 0 then
    local old = redis.call('GETRANGE', KEYS[i * 2 - 1], at, at + 31)
    local digits = string.match(old, '^(%d+)', 1)
    digits = digits and string.sub(digits, 1, 16)
    if digits and #digits == 16 and digits < '8' then -- above it, in the year 2223, only another program's
      if string.sub(old, 17) == string.sub(entry, at + 17, at + 32) then
        kept[i] = digits -- the same content keeps its number
      elseif tonumber(digits) >= number then
        number = tonumber(digits) + 1 -- the server's clock was set back
      end
    end
  end
end
local numbers = {}
for i = 1, entries do
  local entry, at = ARGV[i * 5 - 3], tonumber(ARGV[i * 5])
  numbers[i] = ''
  if valid then
    if entry == '' then
      redis.call('UNLINK', KEYS[i * 2 - 1])
    else
      if at >= 0 then
        numbers[i] = kept[i] or string.format('%016.0f', number)
        entry = string.sub(entry, 1, at) .. numbers[i] .. string.sub(entry, at + 17)
      end
      redis.call('SET', KEYS[i * 2 - 1], entry, 'PX', ARGV[i * 5 - 2])
    end
    redis.call('UNLINK', KEYS[i * 2])
  end
  redis.call('SPUBLISH', ARGV[i * 5 - 1], '')
end
return valid and numbers or nil
