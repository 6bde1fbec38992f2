-- Reads the live totals of an organization and period.
-- KEYS[1]  the totals: a hash
-- KEYS[2]  the reservations: a hash with their sum under '=measure'
-- ARGV[1]  the period's start and
-- ARGV[2]  end in milliseconds since 1970; '' for any time
-- ARGV[3]  and on: the measures
-- RETURNS  used and reserved of each measure, in turn; nil the totals are missing; {now in milliseconds} the period
--          is not the current one
if ARGV[1] ~= '' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if now < tonumber(ARGV[1]) or now >= tonumber(ARGV[2]) then return {now} end
end
local fields = redis.pcall('HLEN', KEYS[1])
if type(fields) ~= 'number' then redis.call('DEL', KEYS[1]) end  -- of another type: not written by us
if type(fields) ~= 'number' or fields == 0 then return false end
-- The sum of the reservations of a measure; 0 for anything that is no number.
local function reserved_of(measure)
  local text = redis.pcall('HGET', KEYS[2], '=' .. measure)
  return type(text) == 'string' and tonumber(text) or 0
end
local found = {}
for i = 3, #ARGV do
  local text = redis.call('HGET', KEYS[1], ARGV[i]) or '0'
  local used = #text <= 17 and string.find(text, '^%-?%d+$') and tonumber(text)
  if not used then  -- not written by us: the caller rebuilds them from SQL
    redis.call('DEL', KEYS[1])
    return false
  end
  found[#found + 1] = used
  found[#found + 1] = reserved_of(ARGV[i])
end
return found
