-- Stores one or several pages whose loads still stand, all of them or none; their numbers and ETags change with them.
-- KEYS     of each page: the entry, its load
-- ARGV     of each page: the token of its load, '' stores in any case and ends any load;
--          the entry, '' when there shall be none; its life in milliseconds; the channel of those who wait for it;
--          where in the entry its version begins, 16 digits for the number and then the stamp, -1 when it has none
-- RETURNS  the number of each page, '' for one without; nil when a load was ended or taken over meanwhile, and nothing
--          was written
local time = redis.call('TIME')
local number = time[1] * 1000000 + time[2]
local pages = #KEYS / 2
local kept = {}
local stand = true
for page = 1, pages do
  local token, entry, at = ARGV[page * 5 - 4], ARGV[page * 5 - 3], tonumber(ARGV[page * 5])
  if token ~= '' and redis.call('GET', KEYS[page * 2]) ~= token then stand = false end
  if entry ~= '' and at >= 0 then
    local old = redis.call('GETRANGE', KEYS[page * 2 - 1], at, at + 31)
    local digits = string.match(old, '^(%d+)', 1)
    if digits and #digits >= 16 then
      digits = string.sub(digits, 1, 16)
      if string.sub(old, 17) == string.sub(entry, at + 17, at + 32) then
        kept[page] = digits -- the same content keeps its number
      elseif tonumber(digits) >= number then
        number = tonumber(digits) + 1 -- the server's clock was set back
      end
    end
  end
end
local numbers = {}
for page = 1, pages do
  local entry, at = ARGV[page * 5 - 3], tonumber(ARGV[page * 5])
  numbers[page] = ''
  if stand then
    if entry == '' then
      redis.call('UNLINK', KEYS[page * 2 - 1])
    else
      if at >= 0 then
        numbers[page] = kept[page] or string.format('%016.0f', number)
        entry = string.sub(entry, 1, at) .. numbers[page] .. string.sub(entry, at + 17)
      end
      redis.call('SET', KEYS[page * 2 - 1], entry, 'PX', ARGV[page * 5 - 2])
    end
    redis.call('UNLINK', KEYS[page * 2])
  end
  redis.call('SPUBLISH', ARGV[page * 5 - 1], '')
end
return stand and numbers or nil
